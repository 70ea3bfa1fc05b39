"""The native format: an .npz archive that keeps everything a Model holds, structured factors included.

Arrays: ``format`` ("tightmap"), ``version`` (1), ``cardinalities`` (n,), ``unaries`` (flat), ``constant``, ``clamped``
(n,), ``grid_shape`` (2,) if there is one, ``kinds`` (the kind of every block, in order), and of block b the arrays
``b<b>.scopes`` (m, k), ``b<b>.weights`` (m,) and its parameters (see factors/), for instance ``b0.tables``.
"""

from __future__ import annotations

from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.custom import custom_kind, parameter_names
from tightmap.factors.kinds import row_named
from tightmap.io.grid_npz import is_grid, read_grid
from tightmap.io.npz import Archive, write_npz
from tightmap.io.source import Source, check_labels
from tightmap.io.tokens import group_rows
from tightmap.model.model import Model

VERSION = 1


def write_native(model: Model, stream: IO[bytes], suffix: str, *, compress: bool = False) -> None:
    """Write everything; ``compress=True`` trades time for a smaller file."""
    arrays: dict[str, Any] = {
        "format": np.array("tightmap"),
        "version": np.array(VERSION),
        "cardinalities": model.cardinalities,
        "constant": np.array(model.constant),
        "unaries": model.unaries,
        "clamped": model.clamped,
        "kinds": np.array([b.name for b in model.blocks], dtype="U32"),
    }
    if model.grid_shape is not None:
        arrays["grid_shape"] = np.array(model.grid_shape)
    for b, block in enumerate(model.blocks):
        for name, array in {"scopes": block.scopes, "weights": block.weights, **block.parameters}.items():
            arrays[f"b{b}.{name}"] = np.asarray(array)
    write_npz(stream, arrays, compress)


def read_npz(source: Source) -> Model:
    """Read a native model, or the arrays of a grid (grid_npz.py)."""
    archive = Archive(source)
    if "format" not in archive:
        if is_grid(archive):
            return read_grid(archive)
        raise ModelError(
            "expected a model written by tightmap, or the arrays D, hw, vw and V of a grid, "
            f"got the arrays {archive.listed()}"
        )
    name = str(archive.get("format", "U", 0))
    if name != "tightmap":
        raise ModelError(f"array 'format': expected 'tightmap', got {name[:40]!a}")
    version = int(archive.get("version", "iu", 0))
    if version != VERSION:
        raise ModelError(f"version {version} of the native format is not supported, this release reads {VERSION}")
    cards = archive.get("cardinalities", "iu", 1)
    check_labels(cards, "array 'cardinalities'", archive.content)
    model = Model(cards)
    unaries = archive.get("unaries", "fiu", 1)
    clamped = archive.get("clamped", "iu", 1)
    if len(unaries) != model.offset[-1] or len(clamped) != len(cards):
        raise ModelError(
            f"arrays 'unaries' and 'clamped': expected {int(model.offset[-1])} and {len(cards)} entries, "
            f"got {len(unaries)} and {len(clamped)}"
        )
    if unaries.any():
        groups = group_rows(cards[:, None])
        for (labels,), nodes in groups:
            if len(groups) == 1:  # no scattering: the array as it is
                model.add_unaries(unaries.reshape(-1, labels))
            else:
                model.add_unaries(unaries[model.offset[nodes][:, None] + np.arange(labels)], nodes)
    model.add_constant(float(archive.get("constant", "fiu", 0)))
    held = np.flatnonzero(clamped >= 0)
    model.clamp(np.stack([held, clamped[held].astype(np.int64)], axis=1))
    if "grid_shape" in archive:
        shape = archive.get("grid_shape", "iu", 1)
        if shape.shape != (2,) or shape.min() < 0 or int(shape[0]) * int(shape[1]) != len(cards):
            raise ModelError(f"array 'grid_shape': expected height and width of {len(cards)} variables, got {shape}")
        model.grid_shape = (int(shape[0]), int(shape[1]))
    for b, kind in enumerate(archive.get("kinds", "U", 1).tolist()):
        _read_block(archive, b, kind, model)
    return model


def _read_block(archive: Archive, b: int, kind: str, model: Model) -> None:
    """Blocks go through the calls of Model, which check everything about them."""

    def get(name: str, kinds: str, ndim: int) -> npt.NDArray[Any]:
        return archive.get(f"b{b}.{name}", kinds, ndim)

    scopes = get("scopes", "iu", 2)
    weights = get("weights", "f", 1)
    row = row_named(kind)
    if row is not None:
        row.read(model, scopes, weights, get)
        return
    custom = custom_kind(kind)
    if custom is None:
        raise ModelError(
            f"array 'kinds': entry {b}: unknown kind of factor {kind[:40]!a}; tightmap.register_kind makes one known"
        )
    arrays = {name: archive.get(f"b{b}.{name}", "fiu", None) for name in parameter_names(custom)}
    model.add_custom(custom(scopes, weights, **arrays))
