"""A model as a sum of small ones that are easy to minimise: the arrays that all methods of this family share.

    E(x) = constant + sum_T E_T(x_T),     E_T(x) = sum_{i in T} u_i^T(x_i) + sum_{f in T} theta_f(x_f),

where every factor belongs to exactly one subproblem T, and the unary costs of a variable are shared out over its copies
in the subproblems: sum_T u_i^T = theta_i.  Whatever the shares are,

    D(u) = constant + sum_T min E_T  <=  min E,

and its maximum over u is the bound of the linear relaxation (for second-order chains of one that is at least as tight).

Subproblems come in classes.  Those of one class have no variable in common, so they are worked on side by side without
looking at each other, and what is computed does not depend on the number of threads.  Every subproblem is

    a tree   factors of any order that are joined without cycles: eliminated one after the other, leaves first, or
    a chain  of variables in a row with factors on two and three neighbours: eliminated over pairs of labels.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import FloatArray, Graph, IntArray
from tightmap.graph.one_form import one_form
from tightmap.runtime.compiled import compiled

TREE, CHAIN = 0, 1


class Subproblems(NamedTuple):
    """Subproblems T, the places in them (copies of variables) and their entries (factors in order of elimination)."""

    class_start: IntArray  # (classes + 1,) first subproblem of every class
    kind: npt.NDArray[np.uint8]  # (T,) TREE or CHAIN
    place_start: IntArray  # (T + 1,)
    entry_start: IntArray  # (T + 1,)
    variable: IntArray  # (places,)
    at: IntArray  # (places + 1,) where the numbers of a copy start in vectors over all copies
    factor: IntArray  # (entries,)
    towards: IntArray  # (entries,) position, in the scope, of the variable nearest to the root; trees only
    member_start: IntArray  # (entries + 1,)
    member: IntArray  # places of the variables of the factor
    sent_at: IntArray  # (entries + 1,) where the message of an entry towards the root is kept
    copy_start: IntArray  # (n + 1,)
    copy: IntArray  # places of every variable, ascending
    terms: FloatArray  # (T,) how many additions the value of one labelling can need
    below: FloatArray  # (T,) sum over the factors of how far below zero their costs go

    @property
    def number(self) -> int:
        """How many subproblems there are."""
        return len(self.kind)

    @property
    def classes(self) -> int:
        return len(self.class_start) - 1

    @property
    def entries(self) -> int:
        """Numbers in a vector over all copies."""
        return int(self.at[-1])


class Part(NamedTuple):
    """One class of subproblems; places are counted from zero."""

    kind: int
    place_start: IntArray
    entry_start: IntArray
    variable: IntArray
    factor: IntArray
    towards: IntArray


@one_form
@compiled
def _root(g, chosen, alone):
    """Trees of the chosen factors, breadth first from their lowest variables; variables that are alone are trees."""
    n, count = len(g.cards), 0
    size = 0
    for f in range(len(chosen)):
        if chosen[f]:
            count += 1
            size += g.scope_start[f + 1] - g.scope_start[f]
    for i in range(n):
        size += alone[i]
    variable = np.empty(size + 1, np.int64)
    factor, towards = np.empty(count, np.int64), np.empty(count, np.int64)
    place_start, entry_start = np.zeros(size + 2, np.int64), np.zeros(size + 2, np.int64)
    seen, done = np.zeros(n, np.bool_), np.zeros(len(chosen), np.bool_)
    trees, top, last = 0, 0, 0
    for root in range(n):
        if seen[root]:
            continue
        here = alone[root]
        for a in range(g.adj_start[root], g.adj_start[root + 1]):
            here |= chosen[g.adj_factor[a]]
        if not here:
            continue
        seen[root] = True
        variable[top] = root
        head, first = top, last
        top += 1
        while head < top:
            i = variable[head]
            head += 1
            for a in range(g.adj_start[i], g.adj_start[i + 1]):
                f = g.adj_factor[a]
                if not chosen[f] or done[f]:
                    continue
                done[f] = True
                factor[last], towards[last] = f, g.adj_pos[a]
                last += 1
                for p in range(g.scope_start[f], g.scope_start[f + 1]):
                    j = g.scope[p]
                    if not seen[j]:
                        seen[j] = True
                        variable[top] = j
                        top += 1
        for e in range((last - first) // 2):  # leaves first
            low, high = first + e, last - 1 - e
            factor[low], factor[high] = factor[high], factor[low]
            towards[low], towards[high] = towards[high], towards[low]
        trees += 1
        place_start[trees], entry_start[trees] = top, last
    return place_start[: trees + 1], entry_start[: trees + 1], variable[:top], factor, towards


def trees(graph: Graph, chosen: npt.NDArray[np.bool_], alone: npt.NDArray[np.bool_]) -> Part:
    """The trees that some factors make, which must not have cycles, and variables without factors."""
    return Part(TREE, *_root(graph.arrays, chosen, alone))


def assemble(graph: Graph, parts: list[Part], least: FloatArray) -> Subproblems:
    """All subproblems; ``least`` is the smallest entry of every factor."""
    g = graph.arrays
    counts = [len(part.place_start) - 1 for part in parts]
    place_start, entry_start = _joined([p.place_start for p in parts]), _joined([p.entry_start for p in parts])
    variable = np.concatenate([p.variable for p in parts])
    factor = np.concatenate([p.factor for p in parts])
    kind = np.repeat(np.array([p.kind for p in parts], dtype=np.uint8), counts)
    arity = np.diff(g.scope_start)[factor]
    member_start = np.concatenate(([0], np.cumsum(arity)))
    member = np.empty(int(member_start[-1]), dtype=np.int64)
    place = np.zeros(graph.n, dtype=np.int64)
    low = first = 0
    for part in parts:
        place[part.variable] = low + np.arange(len(part.variable))
        last = first + len(part.factor)
        _fill(g, factor, place, member_start, member, first, last)
        low, first = low + len(part.variable), last
    towards = np.concatenate([p.towards for p in parts])
    target = variable[member[member_start[:-1] + towards]]
    copies = np.bincount(variable, minlength=graph.n)
    owner = np.repeat(np.arange(len(kind)), np.diff(entry_start))
    width = np.maximum.reduceat(g.cards[g.scope], g.scope_start[:-1])[factor] if len(factor) else arity
    steps = 16.0 * (arity + 2.0) + 4.0 * width
    terms = np.bincount(owner, weights=steps, minlength=len(kind)) + 4.0 * np.diff(place_start) + 4.0
    below = np.bincount(owner, weights=np.maximum(0.0, -least[factor]), minlength=len(kind)).astype(np.float64)
    return Subproblems(
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        kind,
        place_start,
        entry_start,
        variable,
        np.concatenate(([0], np.cumsum(g.cards[variable].astype(np.int64)))),
        factor,
        towards,
        member_start,
        member,
        np.concatenate(([0], np.cumsum(g.cards[target].astype(np.int64)))),
        np.concatenate(([0], np.cumsum(copies))).astype(np.int64),
        np.argsort(variable, kind="stable"),
        terms,
        below,
    )


def _joined(starts: list[IntArray]) -> IntArray:
    """Lists of starts one after the other, each going on where the one before ends."""
    return np.concatenate(([0], np.cumsum(np.concatenate([np.diff(s) for s in starts])))).astype(np.int64)


@one_form
@compiled
def _fill(g, factor, place, member_start, member, first, last):
    for e in range(first, last):
        begin = g.scope_start[factor[e]]
        for p in range(member_start[e + 1] - member_start[e]):
            member[member_start[e] + p] = place[g.scope[begin + p]]
