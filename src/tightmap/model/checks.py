"""Checks of what users hand to a Model: every message names what, where, expected and got."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.factors.block import weighted
from tightmap.factors.repeated import repeated
from tightmap.graph.graph import FloatArray, IntArray


def as_array(values: Any, what: str) -> npt.NDArray[Any]:
    """Whatever was given as an array, not copied where it is one."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of unequal length
        raise ModelError(f"{what}: expected an array ({error})") from None
    _refuse_masked(values, what)
    return array


def _refuse_masked(values: Any, what: str) -> None:
    """Entries that are masked are meant not to count, and there is no such thing here: what lies below would count."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ModelError(f"{what}: the array has masked entries; fill them first (as costs, np.inf forbids)")


def check_costs(values: Any, what: str) -> FloatArray:
    """Costs as float64: +inf is legal, NaN and -inf are not."""
    within = getattr(values, "dtype", None) in _WITHIN_FLOAT64
    try:
        if not within and np.iscomplexobj(values):
            raise TypeError("complex numbers are no costs")
        if not within and np.asarray(values).dtype.kind in "mM":  # NaT would become a cost of -9e18
            raise TypeError("dates and times are no costs")
        with nullcontext() if within else np.errstate(over="ignore"):
            array = np.asarray(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what}: expected an array of numbers ({error})") from None
    except OverflowError:
        raise ModelError(f"{what}: a number is more than float64 can hold") from None
    _refuse_masked(values, what)
    # one pass that catches NaN and -inf alike: the minimum is NaN or -inf exactly then
    lowest = array.min(initial=0.0)
    if not np.isfinite(lowest):
        where = np.argwhere(~(array > -np.inf))[0]
        raise ModelError(
            f"{what}: entry {tuple(int(w) for w in where)} is {array[tuple(where)]}; finite numbers and +inf are legal"
        )
    if not within and np.isinf(array).any():
        # a hard constraint that nobody asked for: numbers of more range than float64 (long doubles, decimals)
        given = np.asarray(values, dtype=object).reshape(array.shape)[np.isinf(array)]
        if any(not _means_infinity(v) for v in given):
            raise ModelError(f"{what}: a number is more than float64 can hold")
    return array


def _means_infinity(value: Any) -> bool:
    if isinstance(value, str | bytes):  # "1e999" is read as +inf, too
        return "n" in str(value)
    return bool(value == math.inf)


_WITHIN_FLOAT64 = frozenset(
    np.dtype(name) for name in ("float64", "float32", "float16")
)  # dtype == None is True: no list


def check_number(value: Any, what: str) -> float:
    """One cost."""
    array = check_costs(value, what)
    if array.size != 1:
        raise ModelError(f"{what}: expected one number, got a shape of {array.shape}")
    return float(array.reshape(()))


def check_rows(given: Any, what: str, ndim: int) -> IntArray:
    """Integers in an array of ``ndim`` axes, empty lists included."""
    array = as_array(given, what)
    if array.size == 0 and array.ndim <= ndim:
        return array.reshape(array.shape + (0,) * (ndim - array.ndim)).astype(np.int64)
    if array.ndim != ndim or array.dtype.kind not in "iu":
        raise ModelError(f"{what}: expected integers with {ndim} axes, got shape {array.shape}, {array.dtype}")
    if array.dtype.kind == "u" and array.max() >= 2**63:
        raise ModelError(f"{what}: a number has more than 63 bits")
    return array.astype(np.int64, copy=False)


def listed(costs: Any, what: str) -> npt.NDArray[Any] | list[Any]:
    """Numbers for every label of every variable: an array where one was given, else a list of vectors."""
    if hasattr(costs, "__array__") or isinstance(costs, memoryview):  # arrays of other libraries too
        array = as_array(costs, what)
        return array if array.dtype != object or array.ndim == 0 else list(array)
    if isinstance(costs, str | bytes | Mapping) or not isinstance(costs, Iterable):
        raise ModelError(f"{what}: expected an array, or one vector for every variable, got {type(costs).__name__}")
    return list(costs)


def own_arrays(arrays: Mapping[str, npt.NDArray[Any]], given: Iterable[Any]) -> dict[str, npt.NDArray[Any]]:
    """Copies of those arrays that lie in the memory of something that was given.

    Whoever writes to their array later (the same buffer for the next factor, say) would otherwise change a model that
    has been checked and solved: bounds and energies would be of two models, scopes might point anywhere.
    """
    copies: dict[str, npt.NDArray[Any]] = {}
    for source in given:
        if source is None or isinstance(source, list | tuple | int | float | np.generic):
            continue
        memory = source if isinstance(source, np.ndarray) else np.asarray(source)
        for name, array in arrays.items():
            if name not in copies and np.may_share_memory(array, memory):
                copies[name] = array.copy()
    return copies


def check_labels(labels: npt.ArrayLike, cards: IntArray, grid_shape: tuple[int, ...] | None) -> IntArray:
    """A labelling of all variables; one of a grid may have the shape of the grid."""
    x = as_array(labels, "labels")
    if x.size == 0:
        x = x.reshape(0).astype(np.int64)
    x = x.reshape(-1) if grid_shape is not None and x.shape == grid_shape else x
    if x.shape != (len(cards),) or x.dtype.kind not in "iu":
        raise ModelError(f"labels: expected {len(cards)} integers, got shape {x.shape}, {x.dtype}")
    if x.size and (x.min() < 0 or (x >= cards).any()):
        i = int(np.argmax((x < 0) | (x >= cards)))
        raise ModelError(f"labels: variable {i} has labels 0..{int(cards[i]) - 1}, got {int(x[i])}")
    return x.astype(np.int64, copy=False)


def check_variables(nodes: npt.ArrayLike, n: int, what: str, ndim: int) -> IntArray:
    """Indices of variables 0..n-1 in an array of ``ndim`` axes."""
    index = as_array(nodes, what)
    if index.size == 0 and index.ndim == ndim:
        index = index.astype(np.int64)
    if index.ndim != ndim or index.dtype.kind not in "iu":
        raise ModelError(f"{what}: expected integers with {ndim} axes, got shape {index.shape}, {index.dtype}")
    if index.size and (index.min() < 0 or index.max() >= n):
        row = int(np.argmax(((index < 0) | (index >= n)).reshape(len(index), -1).any(axis=1)))
        raise ModelError(f"{what}: row {row} is {index[row].tolist()}, variables are 0..{n - 1}")
    return np.ascontiguousarray(index, dtype=np.int64)


def check_scopes(scopes: npt.ArrayLike, n: int, what: str, arity: int | None = None) -> IntArray:
    """(m, k) scopes over n variables, k = arity where one is asked for."""
    index = as_array(scopes, f"{what}: scopes")
    if index.size == 0 and index.ndim < 2:
        index = np.zeros((0, arity or 2), dtype=np.int64)
    if index.ndim == 1:
        raise ModelError(
            f"{what}: scopes: expected one row for every factor (one factor: [[0, 1]]), got {scopes!a:.60}"
        )
    index = check_variables(index, n, f"{what}: scopes", 2)
    if arity is not None and index.shape[1] != arity:
        raise ModelError(f"{what}: scopes: expected (m, {arity}), got {index.shape}")
    if index.shape[1] > 127:
        raise ModelError(f"{what}: factors of more than 127 variables are not supported, got {index.shape[1]}")
    return index


def check_weights(weights: npt.ArrayLike | None, m: int, what: str) -> FloatArray:
    """(m,) finite weights: ones by default, a number is meant for all (and kept once: the array is read-only then)."""
    if weights is None:
        return np.ones(m)
    w = check_costs(weights, f"{what}: weights")
    if w.ndim == 0:
        w = repeated(w, m)
    if w.shape != (m,) or not np.isfinite(w).all():
        raise ModelError(f"{what}: weights: expected {m} finite numbers, got a shape of {w.shape}")
    return w


def check_limits(limit: npt.ArrayLike, m: int, what: str) -> FloatArray:
    """(m,) limits of truncated differences, none negative, +inf for no truncation."""
    array = check_costs(limit, f"{what}: limit")
    if array.ndim == 0:
        array = repeated(array, m)
    if array.shape != (m,) or (m and array.min() < 0):
        raise ModelError(f"{what}: limit: expected a number or {m} numbers, none negative, got {array.shape}")
    return array


def evidence_pairs(evidence: Any) -> tuple[IntArray, IntArray]:
    """Variables and labels of evidence: {variable: label}, pairs, or an (m, 2) array of integers."""
    expected = "evidence: expected {variable: label} or pairs (variable, label) of integers"
    if isinstance(evidence, np.ndarray):
        _refuse_masked(evidence, "evidence")
        pairs = evidence.reshape(0, 2).astype(np.int64) if evidence.size == 0 else evidence
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
            raise ModelError(f"{expected}, got an array of shape {pairs.shape}, {pairs.dtype}")
    else:
        try:
            listed = list(evidence.items() if hasattr(evidence, "items") else evidence)
        except TypeError:
            raise ModelError(f"{expected}, got {type(evidence).__name__}") from None
        found = []
        for pair in listed:
            try:
                variable, label = pair
                found.append((operator.index(variable), operator.index(label)))
            except (TypeError, ValueError):
                raise ModelError(f"{expected}, got {pair!a:.60}") from None
        try:
            pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        except OverflowError:
            raise ModelError(f"{expected}, got one of more than 64 bits") from None
    return pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)


def check_evidence(evidence: Any, cards: IntArray) -> tuple[IntArray, IntArray]:
    """The same for a model with these label counts."""
    nodes, labels = evidence_pairs(evidence)
    wrong = (nodes < 0) | (nodes >= len(cards))
    if wrong.any():
        raise ModelError(
            f"evidence: variable {int(nodes[np.argmax(wrong)])} does not exist (the model has {len(cards)})"
        )
    wrong = (labels < 0) | (labels >= cards[nodes])
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ModelError(
            f"evidence: variable {int(nodes[i])} has labels 0..{int(cards[nodes[i]]) - 1}, got {int(labels[i])}"
        )
    return nodes, labels


def finite_products(weights: FloatArray, costs: FloatArray, what: str) -> FloatArray:
    """weights * costs, +inf only where a cost is: an overflow would become a hard constraint that nobody asked for."""
    with np.errstate(over="ignore"):
        products = weighted(weights, costs)
    if (~np.isfinite(products) & np.isfinite(costs)).any():
        raise ModelError(f"{what}: a product is more than a number can hold")
    return products


def add_costs(total: FloatArray, entries: IntArray | None, costs: FloatArray, once: bool, what: str) -> None:
    """Add costs to some entries (None: to all), in place; ``once``: none of them is listed several times.

    Finite costs whose sum overflows would become a hard constraint that nobody asked for: refused, nothing is added.
    """
    where: IntArray | slice = slice(None) if entries is None else entries
    before = total[where].copy()
    with np.errstate(over="ignore"):
        if entries is None or once:
            total[where] += costs
        else:
            np.add.at(total, entries, costs)
    after = total[where]
    if np.isfinite(after.max(initial=0.0)) and np.isfinite(after.min(initial=0.0)):
        return
    lost = ~np.isfinite(after) & np.isfinite(before) & np.isfinite(costs)
    if entries is not None and not once and lost.any():
        lost &= ~np.isin(entries, entries[np.isinf(costs)])
    if lost.any():
        total[where] = before
        raise ModelError(f"{what} add up to more than a number can hold")
