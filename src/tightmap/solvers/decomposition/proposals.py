"""Labellings on the way: proposals of several kinds, each descended and then fused with the best one so far.

Where the linear relaxation is not tight, or has many solutions, no single rounding is good everywhere.  So proposals
come in turn from

* passes over the variables in order, each labelled given those before it and the messages of the present shares;
* the minimisers of one class of subproblems;
* one label for all variables, where that is not too expensive (an expansion move);
* the averages of the minimisers, near a solution of the relaxation, rounded by coordinate descent.

A proposal is descended to a local minimum and fused: the best mixture with the best labelling that roof duality finds,
or in models of high order every connected region in which it is better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np

from tightmap.energy.energies import energy
from tightmap.graph.graph import FloatArray, Graph
from tightmap.graphcut.fusion import fuse_into
from tightmap.moves.components import component_fusion
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum, round_and_descend
from tightmap.runtime import clock
from tightmap.runtime.pace import time_left
from tightmap.solvers.decomposition.ascent import Ascent
from tightmap.solvers.decomposition.split import Places, Split

FUSED = 4  # roof duality fuses models up to this order: quadratisation adds ever more variables with the order
CHOICES = 1 << 15  # variables that are decided together at most
AFFORDABLE = 1 << 22  # labels of all variables together up to which one label for all of them is a proposal


def _fused(graph: Graph, proposal: Labels, context: Context) -> Labels:
    """The proposal as a local minimum, mixed with the best labelling of the run."""
    proposal = local_minimum(graph, proposal, context)
    best = context.incumbent
    if best is None or not best.energy < np.inf or context.remaining() <= 0.0:
        return proposal
    labels = best.wide_labels
    if graph.order <= FUSED:
        fuse_into(graph, labels, proposal, largest=CHOICES)
    else:
        component_fusion(graph.arrays, labels, proposal)
    return labels if energy(graph, labels) <= energy(graph, proposal) else proposal


class Proposals:
    """Labellings to offer, one kind after the other."""

    def __init__(self, graph: Graph, split: Split, context: Context) -> None:
        self.graph, self.split, self.context = graph, split, context
        affordable = len(graph.arrays.unary) <= AFFORDABLE and graph.order <= FUSED
        self.expansions = graph.max_labels if affordable else 0
        others = [("average", 0), *(("class", k) for k in range(split.sub.classes))]
        others += [("label", s) for s in range(self.expansions)]
        # passes in order are worth most: one before each of the others
        self.kinds = [kind for other in others for kind in (("order", 0), other)]
        self.ascent: Ascent | None = None  # kept while the shares stay: every pass starts from other messages
        self._turn = cycle(self.kinds)
        self._longest: dict[str, float] = {}  # seconds that each kind of work has taken

    def _in_time(self, work: str, do: Callable[[], Labels | None]) -> Labels | None:
        """Do this, unless the time that is left is less than it has taken before."""
        if self.context.remaining() < self._longest.get(work, 0.0):
            return None
        begin = clock.now()
        found = do()
        self._longest[work] = max(self._longest.get(work, 0.0), clock.now() - begin)
        return found

    def fused(self, proposal: Labels) -> Labels | None:
        """The proposal as a local minimum, mixed with the best labelling of the run; None if there is no time."""
        return self._in_time("fusion", lambda: _fused(self.graph, proposal, self.context))

    def next(self, shares: FloatArray, x: Places, average: FloatArray | None) -> Labels | None:
        """The next labelling, from shares, minimisers x of the subproblems and averages of these, by variable."""
        self.ascent = None
        found = self._proposal(shares, x, average)
        return None if found is None else self.fused(found)

    def _proposal(self, shares: FloatArray, x: Places, average: FloatArray | None) -> Labels | None:
        kind, k = next(self._turn)
        return self._in_time(kind, lambda: self._make(kind, k, shares, x, average))

    def _make(self, kind: str, k: int, shares: FloatArray, x: Places, average: FloatArray | None) -> Labels | None:
        if kind == "class":
            return self.split.labelling(x, k)
        if kind == "label":
            return self._constant(k)
        if kind == "average":
            return None if average is None else round_and_descend(self.graph, average, self.context)
        if self.ascent is None:
            self.ascent = Ascent(self.graph, self.split.to_messages(shares))
        return rounded_in_order(self.ascent, self.context)

    def _constant(self, label: int) -> Labels:
        """One label for all variables that have it, the last one for the others."""
        return np.minimum(self.graph.arrays.cards.astype(np.int64) - 1, label)

    def expanded(self, shares: FloatArray, x: Places, average: FloatArray | None) -> Iterator[Labels | None]:
        """The next labelling, improved by expansion moves of its own before it is fused: it may end elsewhere.

        Yields None between two moves, and in the end the labelling.
        """
        found = self._proposal(shares, x, average)
        if found is None:
            return
        labels = local_minimum(self.graph, found, self.context)
        quiet = 0
        for label in cycle(range(self.expansions)):
            if quiet == self.expansions or self.context.remaining() <= 0.0:
                break
            before = energy(self.graph, labels)
            fuse_into(self.graph, labels, self._constant(label), largest=CHOICES)
            quiet = 0 if energy(self.graph, labels) < before else quiet + 1
            yield None
        yield self.fused(labels)


def rounded_in_order(ascent: Ascent, context: Context) -> Labels | None:
    """The better labelling of a forward and a backward pass; None when time is up."""
    found: Labels | None = None
    for forward in (True, False):
        if not ascent.sweep(forward, True, time_left(context)):
            return found
        if found is None or energy(ascent.graph, ascent.labels) < energy(ascent.graph, found):
            found = ascent.labels.copy()
    return found
