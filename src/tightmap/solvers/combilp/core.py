"""A core: a connected set of variables on which the dual solution is not decided, as a model of its own.

    minimise over x_C    sum_{i in C} b_i(x_i) + sum_{f inside C} c_f(x_f)

Every entry of its tables is rounded down, so a lower bound of this model is one of the exact reparametrised costs
(blocks.py), whatever they were computed from.  The exact search works on it a step at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tightmap.canonical.assemble import assemble
from tightmap.canonical.recognise import Sums
from tightmap.energy.certificate import UNIT
from tightmap.energy.energies import energy
from tightmap.factors.piece import Piece
from tightmap.graph.graph import FloatArray, Graph, IntArray, Kind
from tightmap.moves.context import Context, Labels
from tightmap.solvers.base import Init, Solver
from tightmap.solvers.combilp.blocks import Blocks


class Neighbours:
    """Who shares a factor with whom, asked for a few variables at a time."""

    def __init__(self, graph: Graph) -> None:
        self.g = graph.arrays
        self.far = graph.n + 1
        self.distance: IntArray = np.full(graph.n, self.far)  # from the core that is looked at; far everywhere between

    def factors(self, variables: Iterable[int]) -> IntArray:
        """All factors of some variables, ascending."""
        g = self.g
        parts = [g.adj_factor[g.adj_start[i] : g.adj_start[i + 1]] for i in variables]
        return np.unique(np.concatenate(parts)).astype(np.int64) if parts else np.zeros(0, np.int64)

    def members(self, factor: int) -> list[int]:
        members: list[int] = self.g.scope[self.g.scope_start[factor] : self.g.scope_start[factor + 1]].tolist()
        return members

    def around(self, variables: Iterable[int]) -> set[int]:
        """The variables themselves and all that share a factor with one of them."""
        out = set(variables)
        for f in self.factors(out).tolist():
            out.update(self.members(f))
        return out

    def inside(self, variables: set[int]) -> IntArray:
        """Factors all of whose variables are among these."""
        found = [f for f in self.factors(variables).tolist() if variables.issuperset(self.members(f))]
        return np.array(found, dtype=np.int64)

    def entries(self, variables: set[int]) -> int:
        """Entries of the tables of all factors inside."""
        cards = self.g.cards
        return sum(math.prod(int(cards[i]) for i in self.members(f)) for f in self.inside(variables).tolist())

    def components(self, variables: set[int]) -> list[set[int]]:
        """Sets that no factor inside ``variables`` joins, in the order of their first variables."""
        joined: dict[int, set[int]] = {i: set() for i in variables}
        for f in self.inside(variables).tolist():
            members = self.members(f)
            for i in members:
                joined[i].update(members)
        out, seen = [], set[int]()
        for i in sorted(variables):
            if i not in seen:
                part, queue = {i}, deque([i])
                while queue:
                    for j in joined[queue.popleft()] - part:
                        part.add(j)
                        queue.append(j)
                seen |= part
                out.append(part)
        return out

    def rings(self, core: set[int], depth: int, without: set[int]) -> list[list[int]]:
        """Rings around a core, the nearest first; variables ``without`` belong to none."""
        seen, ring, out = set(core), set(core), []
        for _ in range(depth):
            ring = self.around(ring) - seen - without
            seen |= ring
            if not ring:
                break
            out.append(sorted(ring))
        return out


def press(blocks: Blocks, near: Neighbours, core: set[int], depth: int, others: set[int]) -> None:
    """Move what some rings around a core know into its costs; other cores keep theirs."""
    rings = near.rings(core, depth, others)
    inner = np.array(sorted(core), dtype=np.int64)
    outer = np.array([i for ring in reversed(rings) for i in ring], dtype=np.int64)
    near.distance[inner] = 0
    for k, ring in enumerate(rings):
        near.distance[ring] = k + 1
    blocks.press(outer, inner, near.distance)
    near.distance[inner] = near.distance[outer] = near.far
    touched = np.concatenate((inner, outer))
    blocks.refresh(touched, near.factors(touched.tolist()))


@dataclass
class Core:
    """One core, the search on it, and what that has found."""

    variables: IntArray  # ascending
    factors: IntArray  # those inside
    graph: Graph
    least: float  # sum of the minima of its blocks, and what rounding may have added to that
    wrong: float
    labels: Labels  # the best labelling of it
    value: float  # cost of that
    bound: float = -math.inf
    error: float = 0.0  # by how much rounding may have lowered the bound
    steps: int = 0
    solved: bool = False
    inner: Any = None
    members: set[int] = field(default_factory=set)

    @property
    def gain(self) -> float:
        """By how much the bound of the whole model rises if this core's bound takes the place of its minima."""
        return max(0.0, self.bound - self.least)

    def step(self, solver: Solver, context: Context) -> None:
        """A part of the search."""
        if self.inner is None:
            inner = replace(context, incumbent=None, max_iterations=None, shared=None)
            self.inner = solver.start(self.graph, Init(labels=self.labels), inner)
        progress = solver.step(self.inner)
        self.steps += 1
        if progress.labels is not None:
            value = energy(self.graph, progress.labels)
            if value < self.value:
                self.labels, self.value = progress.labels.copy(), value
        if (
            progress.bound is not None and progress.bound > self.bound
        ):  # a search may end with no more than "no better one"
            self.bound, self.error = min(float(progress.bound), self.value), getattr(progress.bound, "error", 0.0)
        if progress.done:
            self.solved, self.inner = True, None


Tables = list[tuple[list[int], np.ndarray]]  # scopes, ascending, and entries in C order


def graph_of(unary: FloatArray, cards: IntArray, groups: Mapping[Any, Tables]) -> Graph:
    """A graph of dense tables; those of a group have the same shape."""
    pieces = [
        Piece(
            Kind.DENSE,
            np.array([scope for scope, _ in rows], dtype=np.int64),
            np.ones(len(rows)),
            np.arange(len(rows)),
            np.stack([table for _, table in rows]),
            np.zeros((len(rows), 0), dtype=np.int64),
        )
        for _, rows in sorted(groups.items())
    ]
    sums = Sums(np.concatenate(([0], np.cumsum(cards))).astype(np.int64), unary, owned=True)
    return assemble(pieces, cards, sums, np.arange(len(cards)), np.full(len(cards), -1), None)


def make_core(blocks: Blocks, near: Neighbours, members: set[int], labels: Labels) -> Core:
    """The core on some variables with the costs that they have now; ``labels`` of the whole model to begin with."""
    variables = np.array(sorted(members), dtype=np.int64)
    factors = near.inside(members)
    own, joint, begin = blocks.tables(variables, factors)
    place = {int(i): k for k, i in enumerate(variables)}
    cards = blocks.graph.arrays.cards[variables].astype(np.int64)
    groups: dict[tuple[int, int], Tables] = {}
    for k, f in enumerate(factors.tolist()):
        scope = [place[i] for i in near.members(f)]
        table = joint[begin[k] : begin[k + 1]]
        if scope != sorted(scope):
            turn = sorted(range(len(scope)), key=scope.__getitem__)
            table = table.reshape(cards[scope]).transpose(turn).reshape(-1)
            scope.sort()
        groups.setdefault((len(scope), len(table)), []).append((scope, table))
    graph = graph_of(own, cards, groups)
    least = math.fsum((*blocks.low_v[variables].tolist(), *blocks.low_f[factors].tolist()))
    wrong = UNIT * float(blocks.wrong_v[variables].sum() + blocks.wrong_f[factors].sum())
    mine = labels[variables].astype(np.int64)
    return Core(variables, factors, graph, least, wrong, mine, energy(graph, mine), members=members)
