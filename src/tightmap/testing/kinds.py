"""What every kind of factor promises, as checks of a small model that has factors of it."""

from __future__ import annotations

import copy
import itertools
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tightmap import io
from tightmap.energy.energies import energy
from tightmap.factors.block import Block
from tightmap.graph.graph import IntArray
from tightmap.model.model import Model
from tightmap.testing.conformance import Method, keeps_its_word_on, name_of
from tightmap.testing.models import optimum

ALL = 1 << 12  # labellings up to which all are tried
SOME = 200  # and how many of a model that has more
ROUNDING = 1e-9


def kind_conformance(model: Model, methods: Iterable[Method] = ("bcd", "exact")) -> int:
    """Put the kinds of a model's factors through all promises; returns how many things were looked at.

    Tables are those of the function, the canonical form has the same energies, whatever variables are held by evidence,
    files bring the model back, and methods keep their word on it.  A model of up to 4096 labellings is compared with
    brute force; of a larger one some labellings are tried.
    """
    count = 0
    every = _labellings(model)
    for block in model.blocks:
        count += _block(model, block, every)
    count += _canonical(model, every, "without evidence")
    for i in range(model.num_variables):
        held = copy.copy(model)
        if held.clamped[i] < 0:
            held.clamp({i: int(model.cardinalities[i]) - 1})
            count += _canonical(held, every, f"with variable {i} held")
    count += _file(model, every)
    if _count(model) <= ALL:
        best = optimum(model)
        for method in methods:
            try:
                keeps_its_word_on(method, model, best)
            except AssertionError as error:
                raise AssertionError(f"method {name_of(method)!r}: {error}") from error
            count += 1
    return count


def _count(model: Model) -> float:
    return float(np.prod(model.cardinalities.astype(np.float64)))


def _labellings(model: Model) -> IntArray:
    """(q, n) all labellings, or some of a model that has too many."""
    if _count(model) <= ALL:
        spans = [range(int(c)) for c in model.cardinalities]
        return np.array(list(itertools.product(*spans)), dtype=np.int64).reshape(-1, model.num_variables)
    rng = np.random.default_rng(0)
    return rng.integers(0, model.cardinalities, size=(SOME, model.num_variables))


def _same(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _block(model: Model, block: Block, every: IntArray) -> int:
    """A block agrees with itself: cost of each factor, cost of all, and tables."""
    what = f"kind {block.name!r}"
    values = np.array([block.evaluate(x) for x in every]).reshape(len(every), len(block))
    for x, costs in zip(every, values, strict=True):
        assert _same(block.total(x), float(costs.sum())), f"{what}: the total is not the sum of the costs"
    tables = 0
    for c, scope in enumerate(block.scopes):
        shape = tuple(int(s) for s in model.cardinalities[scope])
        if math.prod(shape) <= ALL:
            table = block.dense(np.array([c]), shape)[0]
            same = [_same(table[tuple(x[scope])], v) for x, v in zip(every, values[:, c], strict=True)]
            assert all(same), f"{what}: the table of the factor on {scope.tolist()} is not its costs"
            tables += 1
    return 1 + tables


def _canonical(model: Model, every: IntArray, when: str) -> int:
    """The canonical form has the energies of the model, and knows which labellings are forbidden."""
    graph = model.graph()
    held = model.clamped >= 0
    seen = 0
    for x in every:
        if (x[held] != model.clamped[held]).any():
            continue
        seen += 1
        wanted, found = model.energy(x), energy(graph, graph.restrict(x))
        if math.isinf(wanted):
            assert found > graph.hard_threshold, f"labels {x.tolist()} {when}: forbidden, not in the canonical form"
        else:
            mine = graph.user_energy(found)
            assert _same(mine, wanted), f"labels {x.tolist()} {when}: {wanted}, in the canonical form {mine}"
    return seen


def _file(model: Model, every: IntArray) -> int:
    """The native format keeps the blocks as they are."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        io.write(model, path)
        again = io.read(path)
    assert [type(b) for b in again.blocks] == [type(b) for b in model.blocks], "a file does not bring the blocks back"
    for x in every:
        assert again.energy(x) == model.energy(x), f"labels {x.tolist()}: another energy after writing and reading"
    return 1
