"""Canonical forms of models that differ from one another in unaries and weights alone, without beginning anew.

What a factor becomes depends on its scope and its table, never on the unaries; so new unaries are put into the Graph
that is there, and what depends on all costs (the quantum, and with hard constraints the cost that stands for +inf) is
computed again.  New weights are put in where every factor of the model is one factor of the Graph, with the same
weight: structured factors on distinct free variables, no two on the same scope.  Where that does not hold (fixed
variables, factors that became unaries, costs in another unit, a weight of zero) the form is built anew.

Whatever way is taken, the result is the one of ``canonical_form``, bit by bit.  A large image has a list of its edges
here, which a fresh call would do without (image.py): methods may then use moves that need it, and sums over such a list
are in another order, so that the last bits of a bound may differ.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tightmap.canonical.assemble import NOTHING_FORBIDDEN, assemble, common_quantum, in_order
from tightmap.canonical.build import Form, build_graph, canonical_form, own_blocks
from tightmap.canonical.units import Unit, choose_unit
from tightmap.factors.difference import LinearBlock, QuadraticBlock
from tightmap.factors.piece import Piece
from tightmap.factors.pn_potts import PnPottsBlock
from tightmap.factors.potts import PottsBlock
from tightmap.factors.second_difference import SecondDifferenceBlock
from tightmap.graph.graph import STRUCTURE, FloatArray, Graph, IntArray

if TYPE_CHECKING:
    from tightmap.model.model import Model

ONE_TO_ONE = (PottsBlock, LinearBlock, QuadraticBlock, PnPottsBlock, SecondDifferenceBlock)  # never recognised anew
KEPT = ("order", "max_labels", "uniform", "edges")  # what a Graph has found out about its structure


@dataclass(frozen=True)
class _Frame:
    """A Graph and the pieces it was assembled from; its costs are to be replaced."""

    form: Form
    pieces: list[Piece]
    hard: bool  # a table has +inf
    factors: IntArray | None  # which of the user's factors each of the Graph is; None: the weights stay
    rows: list[IntArray] | None  # the same of every piece


class Skeleton:
    """Makes the canonical forms of a model with other unaries or weights."""

    def __init__(self, model: Model) -> None:
        self._blocks = list(model.blocks)
        blocks = own_blocks(model)
        unit = choose_unit(model, blocks)
        form = canonical_form(model, unit, blocks)
        self.first = form.graph
        self.first.__dict__[STRUCTURE] = {}
        free = bool((form.graph.fixed < 0).all())
        self._usable = free and unit.power == 0 and not form.sums.added and not form.sums.infeasible
        self._as_given = _frame(form)
        self._by_weight: _Frame | None = None
        self._tried = False

    def graph(self, model: Model) -> Graph:
        """The canonical form of the model, which is the one of the beginning but for unaries and weights."""
        same = all(a is b for a, b in zip(self._blocks, model.blocks, strict=True))
        frame = self._as_given if same else self._weighted_frame(model)
        weights = None if same else np.concatenate([block.weights for block in model.blocks])
        if not self._usable or frame is None or np.isinf(model.constant):
            return build_graph(model)
        unit = choose_unit(model, own_blocks(model))
        if unit.power != 0:
            return build_graph(model)
        if weights is not None and not weights.all():
            return build_graph(model)
        return _filled(frame, model.flat_unaries(), weights, unit.typical)

    def _weighted_frame(self, model: Model) -> _Frame | None:
        if not self._tried:
            self._tried = True
            self._by_weight = _numbered_frame(model) if self._usable else None
        return self._by_weight


def _frame(form: Form, factors: IntArray | None = None, rows: list[IntArray] | None = None) -> _Frame:
    pieces = in_order(form.pieces)
    return _Frame(form, pieces, any(bool(np.isinf(p.tables).any()) for p in pieces), factors, rows)


def _numbered_frame(model: Model) -> _Frame | None:
    """The form of a model whose weights are the numbers of its factors: the Graph shows where each of them went.

    None where a factor is not found again with its own weight.
    """
    if not all(isinstance(block, ONE_TO_ONE) and _distinct(block.scopes) for block in model.blocks):
        return None
    probe = copy.copy(model)
    probe.replace_unaries(np.split(np.zeros(int(model.offset[-1])), model.offset[1:-1]))
    first, blocks = 1, []
    for block in model.blocks:
        blocks.append(replace(block, weights=np.arange(first, first + len(block), dtype=np.float64)))
        first += len(block)
    probe.blocks = blocks
    form = canonical_form(probe, Unit(0, 1.0))
    numbers = np.arange(1, first)
    if form.graph.m != len(numbers) or form.sums.added or form.sums.constant != 0.0 or form.sums.slack != 0.0:
        return None
    factors = form.graph.arrays.weight.astype(np.int64)
    if not np.array_equal(np.sort(factors), numbers):
        return None
    rows = [piece.weights.astype(np.int64) - 1 for piece in in_order(form.pieces)]
    return _frame(form, factors - 1, rows)


def _distinct(scopes: IntArray) -> bool:
    """No variable occurs twice in a scope."""
    return not (np.diff(np.sort(scopes, axis=1), axis=1) == 0).any()


def _filled(frame: _Frame, unary: FloatArray, weights: FloatArray | None, typical: float) -> Graph:
    graph, pieces, sums = frame.form.graph, frame.pieces, replace(frame.form.sums, unary=unary, owned=False)
    arrays = graph.arrays._replace(unary=unary)
    if weights is not None:
        assert frame.factors is not None and frame.rows is not None
        pieces = [replace(piece, weights=weights[rows]) for piece, rows in zip(pieces, frame.rows, strict=True)]
        arrays = arrays._replace(weight=weights[frame.factors])
    if frame.hard or np.isinf(unary.max(initial=0.0)):
        cards = arrays.cards.astype(np.int64)
        where = graph.variables, graph.fixed, graph.grid_shape
        return assemble(pieces, cards, sums, *where, graph.power, typical, graph.shift)
    quantum = common_quantum(unary, pieces, sums)
    made = replace(graph, arrays=arrays, quantum=quantum, typical=typical, **NOTHING_FORBIDDEN)
    kept = KEPT if weights is not None else (*KEPT, STRUCTURE)
    made.__dict__.update({name: graph.__dict__[name] for name in kept if name in graph.__dict__})
    return made
