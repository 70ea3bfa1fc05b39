"""What the functions of OpenGM files mean, and the call of Model that each becomes.

A decoder gets all factors of one type and one arity: scopes (m, k) and the number of the function each one uses.
Structured functions stay structured; a parameter that is +inf turns them into tables (Model wants finite weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tightmap.factors.block import numbered_labellings
from tightmap.factors.pattern import bell, pattern_ranks
from tightmap.graph.graph import IntArray
from tightmap.io import opengm_streams as ids
from tightmap.io.opengm_streams import MAX_PATTERN, Functions
from tightmap.io.source import AXES, check_entries, finite_sum
from tightmap.io.tokens import group_rows
from tightmap.model.model import Model

_PAIR_VALUES = {ids.ABSOLUTE: 1, ids.TRUNCATED_ABSOLUTE: 2, ids.SQUARED: 1, ids.TRUNCATED_SQUARED: 2, ids.POTTS: 2}
MAX_WORK = 500_000_000  # entries times experts that are evaluated for one function


def _explicit(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    shapes = functions.shapes(used, scopes, model)
    starts = functions.table_starts
    for shape, part in group_rows(shapes):
        distinct, index = np.unique(used[part], return_inverse=True)
        busy = [p for p in range(len(shape)) if len(shape) <= AXES or shape[p] > 1]  # NumPy has few axes
        axes = [shape[p] for p in busy]
        pool = functions.values[starts[distinct][:, None] + np.arange(math.prod(axes))]
        pool = pool.reshape(len(distinct), *axes[::-1]).transpose(0, *range(len(axes), 0, -1))
        model.add_indexed_factors(scopes[part][:, busy], pool, index.reshape(-1))


def _potts(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.pair_shapes(used, scopes, model)
    values = functions.fixed_values(2)[used]
    hard = ~np.isfinite(values).all(axis=1)
    equal, differ = values[~hard].T
    model.add_constant(finite_sum(equal, "the costs of equal labels"))
    with np.errstate(over="ignore"):
        model.add_potts(scopes[~hard], differ - equal)
    scopes, values = scopes[hard], values[hard]  # Potts factors have finite weights: these become tables
    for (s, t), part in group_rows(model.cardinalities[scopes]):
        pairs, index = np.unique(values[part], axis=0, return_inverse=True)
        check_entries(float(s) * t * len(pairs), "functions with infinite parameters")
        same = np.arange(s)[:, None] == np.arange(t)[None, :]
        tables = np.where(same, pairs[:, 0, None, None], pairs[:, 1, None, None])
        model.add_indexed_factors(scopes[part], tables, index.reshape(-1))


def _difference(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.pair_shapes(used, scopes, model)
    parameters = functions.fixed_values(_PAIR_VALUES[functions.kind])[used]
    weight = parameters[:, -1]
    if not np.isfinite(weight).all():
        functions.fail(f"function {int(used[np.argmin(np.isfinite(weight))])}: expected a finite weight")
    limit = parameters[:, 0] if parameters.shape[1] == 2 else np.full(len(weight), np.inf)
    below = limit < 0  # min(d, t) = t for every d
    with np.errstate(over="ignore"):
        always = weight[below] * limit[below]
    if not np.isfinite(always).all():
        functions.fail("a weight times a limit is more than a number can hold")
    model.add_constant(finite_sum(always, "functions that are constant"))
    linear = functions.kind in (ids.ABSOLUTE, ids.TRUNCATED_ABSOLUTE)
    add = model.add_truncated_linear if linear else model.add_truncated_quadratic
    add(scopes[~below], weight[~below], limit[~below])


def _potts_n(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.shapes(used, scopes, model)
    equal, differ = functions.fixed_values(2)[used].T
    if scopes.shape[1] < 2:  # fewer labels always agree
        model.add_constant(finite_sum(equal, "the costs of equal labels"))
        return
    soft = np.isfinite(equal) & np.isfinite(differ)
    model.add_constant(finite_sum(equal[soft], "the costs of equal labels"))
    with np.errstate(over="ignore"):
        model.add_pn_potts(scopes[soft], differ[soft] - equal[soft])
    hard = np.flatnonzero(~soft)
    for _, part in _each(used[hard]):
        row = int(hard[part[0]])
        labels = int(model.cardinalities[scopes[row]].min())
        check_entries(float(labels) * scopes.shape[1], "a function with infinite parameters")
        agreeing = np.repeat(np.arange(labels)[:, None], scopes.shape[1], axis=1)
        model.add_sparse(scopes[hard[part]], agreeing, np.full(labels, equal[row]), float(differ[row]))


def _constant(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.shapes(used, scopes, model)
    model.add_constant(finite_sum(functions.fixed_values(1)[used], "the constants"))


def _unary(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    """Single-site tables: their lengths are those of the variables (the stored ones are missing or unreliable)."""
    if scopes.shape[1] != 1:
        functions.fail(f"a factor uses it on {scopes.shape[1]} variables, expected 1")
    sizes = functions.implied.astype(np.float64)
    if (sizes < 0).any():  # some function is unused: all that is left is to assume equal lengths
        sizes[:] = len(functions.values) // functions.count
    starts = functions.value_starts(sizes)
    if (sizes[used] != model.cardinalities[scopes[:, 0]]).any():
        functions.fail("a function is used on variables with different numbers of labels")
    for (labels,), part in group_rows(model.cardinalities[scopes]):
        distinct, index = np.unique(used[part], return_inverse=True)
        pool = functions.values[starts[distinct][:, None] + np.arange(labels)]
        model.add_indexed_factors(scopes[part], pool, index.reshape(-1))


def _each(used: IntArray) -> list[tuple[int, IntArray]]:
    """(function, its factors) for types that are decoded one function at a time."""
    return [(f, part) for (f,), part in group_rows(used[:, None])]


def opengm_patterns(k: int) -> tuple[IntArray, IntArray]:
    """All partitions of k positions as growth strings (p, k), in our order, and the rank of each in OpenGM's.

    OpenGM sets a bit for every pair (i, j), j < i, of equal labels, in the order of i then j, and sorts the masks.
    """
    strings = np.zeros((1, 1), dtype=np.int64)
    for _ in range(k - 1):
        most = strings.max(axis=1) + 2
        rows = np.repeat(np.arange(len(strings)), most)
        last = np.arange(len(rows)) - np.repeat(np.cumsum(most) - most, most)
        strings = np.concatenate([strings[rows], last[:, None]], axis=1)
    masks = np.zeros(len(strings), dtype=np.int64)
    bit = 0
    for i in range(1, k):
        for j in range(i):
            masks |= (strings[:, i] == strings[:, j]).astype(np.int64) << bit
            bit += 1
    rank = np.empty(len(masks), dtype=np.int64)
    rank[np.argsort(masks)] = np.arange(len(masks))
    return strings, rank


def _potts_g(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    functions.shapes(used, scopes, model)
    arity = functions.shaped[1]
    if arity.max(initial=0) > MAX_PATTERN or arity.min(initial=1) < 1:
        functions.fail(f"expected 1 to {MAX_PATTERN} variables, got {int(arity.min())} to {int(arity.max())}")
    at = functions.value_starts(np.array([bell(int(k)) for k in range(MAX_PATTERN + 1)], dtype=np.float64)[arity])
    k = scopes.shape[1]
    if k == 1:
        model.add_constant(finite_sum(functions.values[at[used]], "the constants"))
        return
    strings, rank = opengm_patterns(k)
    ours = np.empty(len(rank), dtype=np.int64)
    ours[pattern_ranks(strings)] = rank
    for f, part in _each(used):
        model.add_label_patterns(scopes[part], functions.values[at[f] + ours])


def _sparse(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    layout = functions.sparse_layout
    k = scopes.shape[1]
    for f, part in _each(used):
        shape_at, arity, keys_at, number, value_at = layout[f]
        if arity != k:
            functions.fail(f"function {f} has {arity} variables, a factor uses it on {k}")
        shape = functions.indices[shape_at : shape_at + k]
        functions.check(np.broadcast_to(shape, (len(part), k)), np.full(len(part), f), scopes[part], model)
        keys = functions.indices[keys_at : keys_at + number]
        size = math.prod(shape.tolist())  # as a float the last keys of 2^60 would be as large as it is
        if size >= 2**62 or (number and (int(keys.min()) < 0 or int(keys.max()) >= size)):
            functions.fail(f"function {f}: expected keys in 0..{size - 1}")
        default = float(functions.values[value_at])
        values = functions.values[value_at + 1 : value_at + 1 + number]
        own = scopes[part]
        if k > AXES:  # one label needs no axis
            own, shape = own[:, shape > 1], shape[shape > 1]
        axes = tuple(shape.tolist())
        labels = numbered_labellings(keys, axes[::-1])[:, ::-1]  # the first label runs fastest
        if len(axes) >= 2:
            model.add_sparse(own, labels, values, default)
            continue
        table = np.full(axes, default)
        if number:
            table[tuple(labels.T)] = values if axes else values[-1]
        model.add_factors(own, table)


def _experts(model: Model, functions: Functions, scopes: IntArray, used: IntArray) -> None:
    """sum_e alpha_e ln(1 + (sum_j W_ej x_j)^2 / 2): a dense table, there is no structured kind for it."""
    if len(functions.indices) != 3 * functions.count:
        functions.fail(f"expected {3 * functions.count} indices, got {len(functions.indices)}")
    number, arity, labels = functions.indices.reshape(-1, 3).astype(np.float64).T
    starts = functions.value_starts(number * arity + number)
    k = scopes.shape[1]
    entries = 0.0
    for f, part in _each(used):
        if arity[f] != k or k > AXES:
            functions.fail(f"function {f} has {arity[f]:.0f} variables, a factor uses it on {k}")
        shape = np.full(k, int(labels[f]))
        functions.check(np.broadcast_to(shape, (len(part), k)), np.full(len(part), f), scopes[part], model)
        experts = int(number[f])
        entries += float(labels[f]) ** k
        check_entries(entries, "the fields of experts")
        if experts * float(labels[f]) ** k > MAX_WORK:
            functions.fail(f"function {f}: {experts} experts on {float(labels[f]) ** k:.0f} labellings are too many")
        weights = functions.values[starts[f] : starts[f] + experts * k].reshape(experts, k)
        alphas = functions.values[starts[f] + experts * k : starts[f] + experts * (k + 1)]
        if not (np.isfinite(weights).all() and np.isfinite(alphas).all()):
            functions.fail(f"function {f}: expected finite numbers")
        table = np.zeros(tuple(shape))
        grid = np.ogrid[tuple(slice(0, s) for s in shape)]
        with np.errstate(over="ignore", invalid="ignore"):  # Model refuses what overflows
            for w, alpha in zip(weights, alphas, strict=True):
                filtered = sum(wj * g for wj, g in zip(w, grid, strict=True))
                table += alpha * np.log1p(0.5 * np.square(filtered))
        if not np.isfinite(table).all():
            functions.fail(f"function {f}: expected costs that a number can hold")
        model.add_factors(scopes[part], table)


DECODERS: dict[int, Callable[[Model, Functions, IntArray, IntArray], None]] = {
    ids.EXPLICIT: _explicit,
    ids.SPARSE: _sparse,
    ids.ABSOLUTE: _difference,
    ids.TRUNCATED_ABSOLUTE: _difference,
    ids.SQUARED: _difference,
    ids.TRUNCATED_SQUARED: _difference,
    ids.POTTS: _potts,
    ids.POTTS_N: _potts_n,
    ids.CONSTANT: _constant,
    ids.STATIC_UNARY: _unary,
    ids.DYNAMIC_UNARY: _unary,
    ids.POTTS_G: _potts_g,
    ids.FIELD_OF_EXPERTS: _experts,
}
