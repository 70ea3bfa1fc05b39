"""Files: read(path) and write(model, path) choose the format by the suffix; .gz, .bz2 and .xz may follow it.

Whatever is wrong with a file, exactly one ModelError comes out, and it names the file, the place, what was expected and
what is there.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import IntArray
from tightmap.io.atomic import COMPRESSED, writing
from tightmap.io.cfn import read_cfn, write_cfn
from tightmap.io.dd import read_dd
from tightmap.io.labels import read_evidence_from, read_labels_from, write_evidence_to, write_labels_to
from tightmap.io.maxcut import read_maxcut
from tightmap.io.native import read_npz, write_native
from tightmap.io.opengm import read_opengm
from tightmap.io.opengm_write import write_opengm
from tightmap.io.qubo import read_bq, read_coo, read_dimod_json, read_qbsolv, read_qpbo, write_dimod_json, write_qbsolv
from tightmap.io.source import FormatWarning, Source, as_path
from tightmap.io.uai import read_uai, write_uai
from tightmap.io.wcsp import read_wcsp, write_wcsp
from tightmap.model.model import Model

__all__ = [
    "FORMATS",
    "FormatWarning",
    "read",
    "read_evidence",
    "read_labels",
    "write",
    "write_evidence",
    "write_labels",
]

T = TypeVar("T")

# suffix -> (reader, writer); a reader gets the Source, a writer the model, a stream and the suffix; then options
FORMATS: dict[str, tuple[Callable[..., Model], Callable[..., None] | None]] = {
    ".npz": (read_npz, write_native),
    ".uai": (read_uai, write_uai),
    ".lg": (read_uai, write_uai),
    ".h5": (read_opengm, write_opengm),
    ".hdf5": (read_opengm, write_opengm),
    ".wcsp": (read_wcsp, write_wcsp),
    ".cfn": (read_cfn, write_cfn),
    ".dd": (read_dd, None),
    ".qpbo": (read_qpbo, None),
    ".bq": (read_bq, None),
    ".qubo": (read_qbsolv, write_qbsolv),
    ".coo": (read_coo, None),
    ".json": (read_dimod_json, write_dimod_json),
    ".mc": (read_maxcut, None),
    ".txt": (read_maxcut, None),
}


def read(
    path: str | os.PathLike[str], *, evidence: str | os.PathLike[str] | Mapping[int, int] | None = None, **options: Any
) -> Model:
    """Read a model; the suffix says the format.

    Parameters
    ----------
    path : the file, perhaps with .gz, .bz2 or .xz at its end.
    evidence : an .evid file, or {variable: label} (whatever Model.clamp takes); the variables are fixed.
    options : of the format, for instance ``values="cost"`` for .uai, ``hard_threshold=1e5`` for .h5,
        ``unmatched=False`` for .dd; docs/formats.md lists them.
    """
    source = Source(as_path(path))
    if source.suffix not in FORMATS:  # of what is not there, or a folder, the suffix is not what is wrong
        _guarded(source, lambda: source.file_size)
    reader = _format(source.suffix, path)[0]
    _check_options(reader, options, source.suffix)
    model = _guarded(source, lambda: reader(source, **options))
    if isinstance(evidence, str | os.PathLike):
        found = read_evidence(evidence)
        _guarded(Source(as_path(evidence)), lambda: model.clamp(found))
    elif evidence is not None:
        model.clamp(evidence)
    return model


def write(model: Model, path: str | os.PathLike[str], **options: Any) -> None:
    """Write a model; the suffix says the format.  The file appears complete or not at all."""
    if not isinstance(model, Model):
        raise ModelError(f"expected a Model to write, got {type(model).__name__}")
    target = Source(as_path(path))
    writer = _format(target.suffix, path)[1]
    if writer is None:
        able = ", ".join(s for s, (_, w) in FORMATS.items() if w is not None)
        raise ModelError(f"{path}: models are read from {target.suffix} files, not written; formats to write: {able}")
    _check_options(writer, options, target.suffix)
    with writing(path) as stream:
        _guarded(target, lambda: writer(model, stream, target.suffix, **options))


def read_labels(path: str | os.PathLike[str]) -> IntArray:
    """Labels of all variables from a result file (.MPE, .MAP), an .npy array, or integers separated by blanks."""
    source = Source(as_path(path))
    return _guarded(source, lambda: read_labels_from(source))


def write_labels(labels: npt.ArrayLike, path: str | os.PathLike[str]) -> None:
    """Write labels: .MPE and .MAP give result files, .npy an array of the same shape, anything else a line of text."""
    target = Source(as_path(path))
    with writing(path) as stream:
        _guarded(target, lambda: write_labels_to(labels, stream, target.suffix))


def read_evidence(path: str | os.PathLike[str], sample: int = 0) -> dict[int, int]:
    """Evidence {variable: label} of an .evid file; ``sample`` picks one where the file holds several."""
    source = Source(as_path(path))
    return _guarded(source, lambda: read_evidence_from(source, sample))


def write_evidence(evidence: Mapping[int, int], path: str | os.PathLike[str]) -> None:
    """Write evidence {variable: label} in the layout of 2008 and of 2014 and later."""
    target = Source(as_path(path))
    with writing(path) as stream:
        _guarded(target, lambda: write_evidence_to(evidence, stream))


def _format(suffix: str, path: str | os.PathLike[str]) -> tuple[Callable[..., Model], Callable[..., None] | None]:
    if suffix not in FORMATS:
        known = ", ".join(FORMATS)
        name = suffix or "(none)"
        raise ModelError(f"{path}: unknown suffix {name}; formats: {known}, each with {', '.join(sorted(COMPRESSED))}")
    return FORMATS[suffix]


def _check_options(function: Callable[..., Any], options: Mapping[str, Any], suffix: str) -> None:
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if name not in known:
            raise OptionError(f"unknown option {name!r} of {suffix} files; options: {', '.join(known) or 'none'}")


def _guarded(source: Source, work: Callable[[], T]) -> T:
    """Put the file's name before a ModelError, and make one of running out of memory."""
    path: Path = source.path
    try:
        return work()
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except MemoryError:
        raise ModelError(f"{path}: the model does not fit in memory") from None
