"""OpenGM models in HDF5 (.h5), read in bulk.

A model is a group (usually ``gm``) with the datasets ``header`` = [2, 0, V, F, T, id, count, ..., value type],
``numbers-of-states``, ``factors`` = records (function, type position, k, v_1 .. v_k), and per type of function a group
``function-id-<ID>`` with two streams, ``indices`` and ``values``.  Tables are stored with the first variable fastest.
Factors of one type and arity are decoded together, so a file of a million factors takes no loop over them; the types
of function themselves are in opengm_functions.py.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightmap.errors import ModelError, OptionError
from tightmap.io.opengm_functions import DECODERS
from tightmap.io.opengm_streams import Functions
from tightmap.io.source import MAX_BYTES, MAX_LABELS, SMALL_CONTENT, Source, check_arity, check_labels
from tightmap.io.tokens import chase, group_rows
from tightmap.model.model import Model
from tightmap.runtime.memory import require


@dataclass(frozen=True)
class _File:
    """The group of the model, with datasets checked before they are loaded."""

    group: Any
    size: int  # bytes of the file

    def vector(self, name: str, kinds: str = "iu") -> Any:
        import h5py

        item = _member(self.group, name)
        if not isinstance(item, h5py.Dataset):
            raise ModelError(f"dataset {name}: missing")
        if item.is_virtual or item.external:
            raise ModelError(f"dataset {name}: its data lies in another file, which is not read")
        if item.ndim != 1 or item.dtype.kind not in kinds or item.dtype.itemsize > 8 or item.dtype.subdtype:
            wanted = "integers" if kinds == "iu" else "numbers"
            raise ModelError(f"dataset {name}: expected a vector of {wanted}, got {item.dtype} of shape {item.shape}")
        stored = min(item.id.get_storage_size(), self.size)
        # deflate shrinks at most about a thousand times: more than that was never written by anyone
        if item.size * 8 > min(MAX_BYTES, max(SMALL_CONTENT, 1100 * stored)):
            raise ModelError(f"dataset {name}: promises {item.size} entries, too many for {stored} bytes in the file")
        require(24.0 * item.size, f"dataset {name} of {item.size} entries")
        array = item[()]
        if kinds != "iu":
            return array.astype(np.float64)
        if array.size and (array.min() < 0 or array.max() >= 2**62):
            at = int(np.argmax((array < 0) | (array >= 2**62)))
            raise ModelError(f"dataset {name}, entry {at}: expected an integer in 0..2^62, got {int(array[at])}")
        return array.astype(np.int64)


def _member(group: Any, name: str) -> Any:
    """What this file stores under a name, or None; links are not followed, they may lead to another file."""
    import h5py

    for part in name.split("/"):
        if not isinstance(group, h5py.Group):
            return None
        link = group.get(part, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise ModelError(f"'{ascii(part)[1:-1][:60]}' is a link to somewhere else, which is not followed")
        group = group.get(part)
    return group


def _model_group(file: Any) -> Any:
    import h5py

    def holds_model(item: Any) -> bool:
        return isinstance(item, h5py.Group) and item.get("header", getlink=True) is not None

    if "gm" in file and holds_model(found := _member(file, "gm")):
        return found
    hard = [k for k in file if isinstance(file.get(k, getlink=True), h5py.HardLink)]
    groups = [g for g in (file.get(k) for k in hard) if holds_model(g)]
    if len(groups) != 1:
        raise ModelError(f"expected a group 'gm' or one group with a 'header', got {len(groups)} such groups")
    return groups[0]


def read_opengm(source: Source, *, hard_threshold: float | None = None) -> Model:
    """Read an OpenGM model whose factors add up (``adder``).

    hard_threshold : costs at or above it become +inf.  OpenGM's converters write big numbers such as 1e5 or 1e7 for
        what is forbidden; without this option they stay numbers, so that published energies match.
    """
    if hard_threshold is not None and not (isinstance(hard_threshold, int | float) and hard_threshold > 0.0):
        raise OptionError(f"option hard_threshold: expected a positive number, got {hard_threshold!r}")
    if source.head(8) != b"\x89HDF\r\n\x1a\n":
        raise ModelError("byte 0: expected the signature of an HDF5 file")
    size = len(source.data) if source.compressed else source.file_size
    import h5py

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            with h5py.File(source.stream() if source.compressed else source.path, "r") as file:
                return _read(_File(_model_group(file), size), hard_threshold)
    except ModelError:
        raise
    except (OSError, RuntimeError, RuntimeWarning, KeyError, ValueError, TypeError, SystemError) as error:
        # what the HDF5 library says about a damaged file
        said = ascii(str(error).splitlines()[0])[1:-1][:200] if str(error) else type(error).__name__
        raise ModelError(f"damaged HDF5 file ({said})") from None


def _read(file: _File, hard_threshold: float | None) -> Model:
    header = file.vector("header")
    if len(header) < 5 or header[0] != 2 or header[1] != 0:
        raise ModelError(f"dataset header: expected version 2.0, then V, F and T, got {header[:5].tolist()}")
    n, factors, types = (int(v) for v in header[2:5])
    if types > len(header) or len(header) not in (5 + 2 * types, 6 + 2 * types):
        raise ModelError(f"dataset header: expected {6 + 2 * types} entries for {types} types, got {len(header)}")
    kinds = header[5 : 5 + 2 * types : 2].tolist()
    if len(set(kinds)) < types:
        raise ModelError(f"dataset header: expected {types} different types of function, got {kinds[:12]}")
    cards = file.vector("numbers-of-states") if n else np.zeros(0, dtype=np.int64)
    if len(cards) != n:
        raise ModelError(f"dataset numbers-of-states: expected {n} entries, got {len(cards)}")
    check_labels(cards, "dataset numbers-of-states", file.size)
    model = Model(cards)
    if factors == 0:
        return model

    records = file.vector("factors")
    starts, arity, end = chase(records, 0, factors, offset=2)
    if len(starts) < factors or end != len(records):
        raise ModelError(f"dataset factors, entry {end}: expected {factors} factors in all, got {len(starts)}")
    check_arity(arity, "factor")
    function, position = records[starts], records[starts + 1]
    if position.min() < 0 or position.max() >= types:
        f = int(np.argmax((position < 0) | (position >= types)))
        raise ModelError(f"factor {f}: expected a type in 0..{types - 1}, got {int(position[f])}")
    inside = np.ones(len(records), dtype=bool)
    inside[starts] = inside[starts + 1] = inside[starts + 2] = False
    wrong = inside & ((records < 0) | (records >= n))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ModelError(f"dataset factors, entry {at}: expected a variable in 0..{n - 1}, got {int(records[at])}")

    for t in np.unique(position):
        kind, count = int(header[5 + 2 * t]), int(header[6 + 2 * t])
        rows = np.flatnonzero(position == t)
        used = function[rows]
        if used.min() < 0 or used.max() >= count:
            f = int(rows[np.argmax((used < 0) | (used >= count))])
            raise ModelError(
                f"factor {f}: expected a function in 0..{count - 1} of type {kind}, got {int(function[f])}"
            )
        if kind not in DECODERS:
            raise ModelError(f"functions of OpenGM's type {kind} are not supported")
        folder = f"function-id-{kind}"
        none = _member(file.group, f"{folder}/indices") is None
        streams = np.zeros(0, dtype=np.int64) if none else file.vector(f"{folder}/indices")
        values = file.vector(f"{folder}/values", "iuf")
        if hard_threshold is not None:
            values[values >= hard_threshold] = np.inf
        if np.isnan(values).any() or (values == -np.inf).any():
            at = int(np.argmax(np.isnan(values) | (values == -np.inf)))
            raise ModelError(f"dataset {folder}/values, entry {at}: expected a number above -inf, got {values[at]}")
        if count > len(values):
            raise ModelError(f"group {folder}: the header promises {count} functions, got {len(values)} values")
        implied = np.full(count, -1, dtype=np.int64)  # what single-site functions do not say: their number of labels
        busy = rows[arity[rows] > 0]
        implied[function[busy]] = cards[records[starts[busy] + 3]]
        table = Functions(kind, count, streams, values, implied)
        for (k,), part in group_rows(arity[rows][:, None]):
            scopes = records[starts[rows[part]][:, None] + 3 + np.arange(k)]
            if k == 1 and float(cards[scopes].sum(dtype=np.float64)) > MAX_LABELS:  # each of them is added up
                raise ModelError(f"{len(part)} factors on single variables have more than {MAX_LABELS} costs in all")
            DECODERS[kind](model, table, scopes, used[part])
    return model
