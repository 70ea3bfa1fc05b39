"""Model -> Graph: fold, sort, merge, recognise, and make hard constraints finite.

Every step leaves the energy of every labelling as it was (up to ``slack``):
fixed variables (one label, or evidence) are sliced away, a variable repeated in a scope becomes the diagonal of its
table, factors that are left with one or no variable go to the unaries or to the constant, scopes are sorted, factors on
the same scope are added, and +inf becomes the table's own minimum plus a cost that no feasible labelling can afford.
Costs of unusual size are counted in another unit (``units``), and constants stand aside: a solver sees neither.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tightmap.canonical.assemble import assemble, table_extent
from tightmap.canonical.image import IMPLICIT, image_graph, image_steps
from tightmap.canonical.join import joined
from tightmap.canonical.lower import lowered
from tightmap.canonical.merge import merge_duplicates
from tightmap.canonical.recognise import Sums, recognise
from tightmap.canonical.units import TOO_LARGE, Unit, choose_unit, lost_costs
from tightmap.errors import ModelError
from tightmap.factors.block import Block, Exceptions, labelling_numbers
from tightmap.factors.piece import Piece, ascending, simple_piece
from tightmap.graph.graph import Arrays, FloatArray, Graph, IntArray, Kind

if TYPE_CHECKING:
    from tightmap.model.model import Model

MOST_ENTRIES = 1 << 27  # entries of temporary dense tables beyond which a reduction is refused


@dataclass(frozen=True)
class Form:
    """A Graph with what it was assembled from."""

    graph: Graph
    pieces: list[Piece]
    sums: Sums


def build_graph(model: Model) -> Graph:
    """The canonical form of a model."""
    lattice = lattice_graph(model)
    if lattice is not None:
        return lattice
    blocks = own_blocks(model)
    return canonical_form(model, choose_unit(model, blocks), blocks).graph


def lattice_graph(model: Model, least: int | None = None) -> Graph | None:
    """The canonical form of an image of at least so many pixels that needs no list of its edges, or None.

    Images of fewer pixels and many labels have no list either until somebody asks for it, so that their unaries can be
    in single precision.
    """
    avoided = model.num_variables >= (IMPLICIT if least is None else least)
    steps = image_steps(model) if avoided or model.single else None
    unit = choose_unit(model, model.blocks) if steps is not None else None
    if steps is None or unit is None or unit.power != 0:
        return None
    # what is added to the model later is not part of this Graph, and a model that nobody else holds is to be gone
    given, kind, owner = model.__getstate__(), type(model), weakref.ref(model)

    def write_out() -> Arrays:
        twin, holder = kind.__new__(kind), owner()
        if holder is not None and holder.given_unaries is given["_unaries"]:
            given["_unaries"] = holder.flat_unaries()  # in double precision, and one array for both
        twin.__setstate__(given)
        return canonical_form(twin, unit).graph.arrays

    return image_graph(model, unit, steps, write_out, avoided)


def own_blocks(model: Model) -> list[Block]:
    """The blocks of a model, kinds from outside lowered to kinds of ours."""
    return [own for block in model.blocks for own in lowered(block, model.cardinalities)]


def canonical_form(model: Model, unit: Unit, blocks: list[Block] | None = None) -> Form:
    """The canonical form of a model in this unit."""
    power = unit.power
    blocks = own_blocks(model) if blocks is None else blocks
    if power == 0:  # in another unit each block splits its costs between tables and weights on its own
        blocks = joined(blocks)
    fixed = np.where(model.cardinalities == 1, 0, model.clamped)
    kept = fixed < 0
    free = bool(kept.all())  # as variables mostly are: then they and their costs keep their places
    variables = np.arange(len(kept)) if free else np.flatnonzero(kept)
    cards = np.ascontiguousarray(model.cardinalities) if free else model.cardinalities[variables]
    if free:
        new_id, offset = variables, model.offset
    else:
        new_id = np.full(model.num_variables, -1, dtype=np.int64)
        new_id[variables] = np.arange(len(variables))
        offset = np.concatenate(([0], np.cumsum(cards))).astype(np.int64)
    whole = model.flat_unaries()
    if power:
        whole = np.ldexp(whole, power)
    if free:
        sums = Sums(offset, whole, owned=power != 0)
    else:
        mine = np.repeat(kept, model.cardinalities)
        sums = Sums(offset, whole[mine], owned=True)
        held = np.flatnonzero(~kept)
        at_fixed = whole[model.offset[held] + fixed[held]]
        sums.infeasible |= bool(np.isinf(at_fixed).any())
        sums.constant += float(at_fixed[np.isfinite(at_fixed)].sum())
    infeasible = math.isinf(model.constant)
    builder = _Builder(model.cardinalities, fixed, new_id, sums, free)
    pieces: list[Piece] = []
    for block in blocks:
        pieces += builder.pieces(block.scaled(power) if power else block)
    if infeasible or not math.isfinite(sums.constant):
        sums.infeasible, sums.constant = True, 0.0
    pieces = merge_duplicates(pieces, cards, sums)
    shape = model.grid_shape if free else None
    if power < 0:  # costs so large that a sum of them may be no number
        _refuse_overflow(pieces, sums, power)
    if power:
        sums.slack += lost_costs(model, blocks, power)
    shift = math.ldexp(sums.constant, -power) + (0.0 if infeasible else model.constant)
    graph = assemble(pieces, cards, sums, variables, fixed, shape, power, unit.typical, shift)
    return Form(graph, pieces, sums)


def _refuse_overflow(pieces: list[Piece], sums: Sums, power: int) -> None:
    finite = np.where(np.isfinite(sums.unary), np.abs(sums.unary), 0.0)
    total = abs(sums.constant) + float(np.maximum.reduceat(finite, sums.offset[:-1]).sum() if len(finite) else 0.0)
    total += sum(float(np.maximum(*map(np.abs, table_extent(piece))).sum()) for piece in pieces)
    if math.frexp(total)[1] - power > 1023:
        raise ModelError(TOO_LARGE)


class _Builder:
    """Turns blocks into pieces on canonical variables; what is not a factor any more goes to ``sums``."""

    def __init__(self, cards: IntArray, fixed: IntArray, new_id: IntArray, sums: Sums, same_ids: bool) -> None:
        self.cards = cards
        self.fixed = fixed
        self.new_id = new_id
        self.sums = sums
        self.same_ids = same_ids  # canonical variables are the user's

    def allow(self, rounding: float) -> None:
        self.sums.slack += rounding

    def pieces(self, block: Block) -> list[Piece]:
        zero = block.weights == 0.0
        rows = np.flatnonzero(~zero) if zero.any() else np.arange(len(zero))
        scopes = block.scopes[rows] if len(rows) < len(zero) else block.scopes
        if block.arity == 2:
            special = scopes[:, 0] == scopes[:, 1]
        else:
            special = (np.diff(np.sort(scopes, axis=1), axis=1) == 0).any(axis=1)
        if not self.same_ids:
            special |= (self.new_id[scopes] < 0).any(axis=1)
        out: list[Piece] = []
        if special.any():
            out += self._reduced(block, rows[special])
            rows = rows[~special]
        if len(rows):
            out += self._plain(block, rows)
        return out

    # ------------------------------------------------------------- rows on distinct, free variables

    def _plain(self, block: Block, rows: IntArray) -> list[Piece]:
        scopes, weights = block.scopes, block.weights
        if len(rows) < len(weights):
            scopes, weights = scopes[rows], weights[rows]
        if not self.same_ids:
            scopes = self.new_id[scopes]
        return block.pieces(rows, scopes, weights, self)

    def tables(self, scopes: IntArray, tables: FloatArray, index: IntArray, weights: FloatArray) -> list[Piece]:
        """Dense tables with their axes permuted so that every scope is ascending."""
        if ascending(scopes):
            return recognise(scopes, tables, index, weights, self.sums)
        out: list[Piece] = []
        orders, group = np.unique(np.argsort(scopes, axis=1), axis=0, return_inverse=True)
        group = group.reshape(-1)
        for q, order in enumerate(orders):
            mine = np.flatnonzero(group == q)
            used, own = np.unique(index[mine], return_inverse=True)
            turned = np.ascontiguousarray(tables[used].transpose((0, *(1 + order))))
            out += recognise(scopes[mine][:, order], turned, own.reshape(-1).astype(np.int64), weights[mine], self.sums)
        return out

    def exceptions(
        self,
        scopes: IntArray,
        entries: IntArray,
        values: FloatArray,
        default: float,
        shape: tuple[int, ...],
        weights: FloatArray,
    ) -> list[Piece]:
        if float(np.prod(np.asarray(shape, dtype=np.float64))) <= 64:  # as small as its own list of exceptions
            table = np.full((1, *shape), default)
            table[(0, *entries.T)] = values
            return self.tables(scopes, table, np.zeros(len(scopes), dtype=np.int64), weights)
        out: list[Piece] = []
        orders, group = np.unique(np.argsort(scopes, axis=1), axis=0, return_inverse=True)
        for q, order in enumerate(orders):
            mine = np.flatnonzero(group.reshape(-1) == q)
            turned = tuple(shape[p] for p in order)
            keys = labelling_numbers(entries[:, order], turned)
            at = np.argsort(keys)
            ints = np.concatenate(([len(keys)], np.asarray(keys)[at])).astype(np.int64)[None]
            piece = simple_piece(
                Kind.SPARSE, scopes[mine][:, order], weights[mine], np.concatenate(([default], values[at]))
            )
            piece.ints = ints
            out.append(piece)
        return out

    # ------------------------------------------------------------- rows with fixed or repeated variables

    def _reduced(self, block: Block, rows: IntArray) -> list[Piece]:
        """Slice fixed variables away and take diagonals of repeated ones, for groups of rows of one form."""
        scopes = block.scopes[rows]
        _, k = scopes.shape
        labels = self.fixed[scopes]
        first = (scopes[:, :, None] == scopes[:, None, :]).argmax(axis=2)  # which positions hold the same variable
        form = np.concatenate((self.cards[scopes], labels, first), axis=1)
        _, group = np.unique(form, axis=0, return_inverse=True)
        out: list[Piece] = []
        for q in range(int(group.max()) + 1):
            mine = rows[group.reshape(-1) == q]
            scope, shape = block.scopes[mine], tuple(int(c) for c in self.cards[block.scopes[mine[0]]])
            free: list[int] = []  # first position of every variable that stays
            axis = []  # for every position: its label if fixed, else which of the free variables it is
            for p in range(k):
                if self.fixed[scope[0, p]] >= 0:
                    axis.append((True, int(self.fixed[scope[0, p]])))
                    continue
                before = [f for f in free if scope[0, f] == scope[0, p]]
                if not before:
                    free.append(p)
                axis.append((False, free.index(before[0]) if before else len(free) - 1))
            found = block.exceptions(int(mine[0]), shape)
            if found is not None:
                out += self._reduced_exceptions(block, mine, found, free, axis)
                continue
            if float(np.prod(np.asarray(shape, dtype=np.float64))) * len(mine) > MOST_ENTRIES:
                raise ModelError(f"{len(mine)} factors of shape {shape} with fixed or repeated variables are too large")
            tables = block.dense(mine, shape)
            grids = np.ogrid[tuple(slice(0, shape[f]) for f in free)] if free else []
            pick = tuple(value if is_fixed else grids[value] for is_fixed, value in axis)
            small = tables[(slice(None), *pick)]
            out += self._route(self.new_id[scope[:, free]], small)
        return out

    def _reduced_exceptions(
        self, block: Block, rows: IntArray, found: Exceptions, free: list[int], axis: list[Any]
    ) -> list[Piece]:
        """Rows that share a list of exceptions, those that fit to what is fixed and repeated."""
        shape = tuple(int(c) for c in self.cards[block.scopes[rows[0]]])
        entries, values, default = found
        fits = np.ones(len(entries), dtype=bool)
        for p, (is_fixed, value) in enumerate(axis):
            fits &= entries[:, p] == (value if is_fixed else entries[:, free[value]])
        entries, values = entries[fits][:, free], values[fits]
        left = tuple(shape[f] for f in free)
        scopes, weights = self.new_id[block.scopes[rows][:, free]], block.weights[rows]
        if len(free) >= 2:
            return self.exceptions(scopes, entries, values, default, left, weights)
        table = np.full(left, default)
        if free:
            table[tuple(entries.T)] = values
        elif len(values):
            table[()] = values[0]
        return self._route(scopes, weights.reshape((-1,) + (1,) * len(left)) * table)

    def _route(self, scopes: IntArray, tables: FloatArray) -> list[Piece]:
        """Tables (m, ...) that may have become constants or unaries."""
        if scopes.shape[1] == 0:
            self.sums.constant += float(tables.sum())
        elif scopes.shape[1] == 1:
            self.sums.add_unaries(scopes[:, 0], tables)
        else:
            index = np.arange(len(scopes), dtype=np.int64)
            return self.tables(scopes, np.ascontiguousarray(tables), index, np.ones(len(scopes)))
        return []
