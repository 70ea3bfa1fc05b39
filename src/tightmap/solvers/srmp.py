"""SRMP: sequential reweighted message passing on the region graph, for factors of any order (algorithms.md, 1.7).

    maximise over messages  sum over regions of the minimum of the reparametrised region  (a lower bound of the energy)

Variables, and the factors that other factors send messages to, are visited in order and back again.  A visit collects
the min-marginals of all regions around and shares the sum out over those that come later.  The bound never falls.  With
``edges="minimal"`` it is that of the local polytope at best; with ``"full"`` factors exchange messages with the factors
inside them, which is tighter; ``clusters`` adds zero factors for more of the same.  On pairwise models without clusters
the method is TRW-S.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tightmap.energy import energy
from tightmap.errors import OptionError
from tightmap.graph import FloatArray, Graph
from tightmap.solvers.base import Context, Final, Init, Labels, Progress, Solver
from tightmap.solvers.bcd import local_minimum
from tightmap.solvers.clusters import pair_clusters, square_clusters
from tightmap.solvers.dual import Dual, given_messages
from tightmap.solvers.orders import ORDERS, node_order
from tightmap.solvers.region_kernels import Buffers, certified_bound, make_buffers, round_pass, sweep
from tightmap.solvers.regions import Regions, build_regions, carry, from_plain, to_plain

STEP = 0.1  # seconds of work between two looks at the clock
EARLY = 8  # iterations at the beginning in which every labelling is rounded
SPAN = 10  # iterations over which the bound has to gain


class Run:
    """Messages on a region graph, and what has been found with them."""

    def __init__(self, regions: Regions, neg: FloatArray, context: Context) -> None:
        self.regions, self.neg, self.context = regions, neg, context
        self.buffers: Buffers = make_buffers(regions)
        self.chunk = 64  # positions of the sequence per call of a kernel; adapted to the clock
        self.iteration = 0
        self.low = -math.inf  # running value of the bound after the last backward pass
        self.labels: Labels | None = None
        self.best_energy = math.inf

    def replace(self, regions: Regions) -> None:
        """Go on with the same messages on a larger region graph."""
        self.neg = carry(self.regions, self.neg, regions)
        self.regions = regions
        self.buffers = make_buffers(regions)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Ranges of the sequence, each some 20 ms of work."""
        count, begin = len(self.regions.dag.sequence), 0
        while begin < count:
            end = min(count, begin + self.chunk)
            clock = time.perf_counter()
            yield begin, end
            spent = time.perf_counter() - clock
            if spent < 0.01 and end - begin == self.chunk:
                self.chunk *= 2
            elif spent > 0.04 and self.chunk > 1:
                self.chunk //= 2
            begin = end

    def passes(self, ahead: bool) -> Iterator[None]:
        """One pass over the sequence; yields between the pieces."""
        g, d = self.regions.graph.arrays, self.regions.dag
        low = []
        for begin, end in self.pieces():
            low.append(sweep(g, d, self.neg, ahead, begin, end, self.buffers))
            yield
        if not ahead:
            self.low = self.regions.graph.constant + math.fsum(low)

    def rounded(self, ahead: bool, polish: bool) -> Iterator[None]:
        """Label the variables one after the other; the result is offered by the next report."""
        regions = self.regions
        graph = regions.graph
        neg = self.neg.copy()
        labels = np.full(graph.n, -1, dtype=np.int64)
        held, starts = np.empty(max(1, int(graph.arrays.cards.max())) * graph.order), np.empty(graph.order, np.int64)
        chosen = np.empty(regions.table, dtype=np.int64)
        for begin, end in self.pieces():
            round_pass(graph.arrays, regions.dag, neg, ahead, labels, begin, end, self.buffers, held, starts, chosen)
            yield
        self.offer(local_minimum(graph, labels) if polish else labels)

    def offer(self, labels: Labels) -> None:
        value = energy(self.regions.graph, labels)
        if value < self.best_energy:
            self.labels, self.best_energy = labels, value

    def bound(self) -> float:
        return certified_bound(self.regions, self.neg)

    def meets(self, bound: float) -> bool:
        """Does a bound come so close to the best energy that a certificate is worth its time?"""
        slack = max(1e-9 * max(1.0, abs(self.best_energy)), 1.001 * self.regions.graph.quantum)
        return bound >= self.best_energy - slack

    def dual(self) -> Dual:
        return Dual(self.regions.graph, lambda: to_plain(self.regions, self.neg), native=(self.regions, self.neg))


def start_run(regions: Regions, init: Init, context: Context) -> Run:
    """Begin with the messages of an earlier run where there are any, with zero otherwise."""
    graph = regions.graph
    neg: FloatArray | None = None
    native = init.state.native if isinstance(init.state, Dual) else None
    if isinstance(native, tuple) and isinstance(native[0], Regions) and native[0].graph is graph:
        before: Regions = native[0]
        if before.clusters == regions.clusters[: len(before.clusters)]:
            neg = carry(before, native[1], regions)
    if neg is None:
        messages = given_messages(init, graph)
        neg = np.zeros(regions.entries) if messages is None else from_plain(regions, messages)
    run = Run(regions, neg, context)
    if init.labels is not None:
        run.offer(init.labels)
    return run


@dataclass
class State:
    run: Run
    work: Iterator[Progress | None]


@dataclass(frozen=True)
class SRMP(Solver):
    """Options of SRMP.

    edges      "full": factors send messages to the largest factors inside them; "minimal": to variables only
    clusters   zero factors to add: "none", "squares" (2 x 2 on grids), "pairs" (shared by factors of order 3 or more)
    order      of the variables: "index" (right for images), "greedy" or "rcm" (for numberings without meaning)
    rounding   a labelling is rounded in both passes of every so many iterations
    polish     coordinate descent from every rounding
    tolerance  stop when 10 iterations raise the bound by less than this, relative to the bound
    """

    edges: str = "full"
    clusters: str = "none"
    order: str = "index"
    rounding: int = 5
    polish: bool = True
    tolerance: float = 1e-8

    name: ClassVar[str] = "srmp"
    summary: ClassVar[str] = "sequential reweighted message passing for any order, with certified (and tightened) bounds"
    gives_bound: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.edges not in ("full", "minimal"):
            raise OptionError(f"srmp: edges must be 'full' or 'minimal', got {self.edges!r}")
        if self.clusters not in ("none", "squares", "pairs"):
            raise OptionError(f"srmp: clusters must be 'none', 'squares' or 'pairs', got {self.clusters!r}")
        if self.order not in ORDERS:
            raise OptionError(f"srmp: order must be one of {', '.join(ORDERS)}, got {self.order!r}")
        if self.rounding < 1:
            raise OptionError(f"srmp: rounding must be at least 1, got {self.rounding}")
        if not self.tolerance >= 0.0:
            raise OptionError(f"srmp: tolerance must be at least 0, got {self.tolerance}")

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        added: list[tuple[int, ...]] = []
        if self.clusters == "squares":
            added = square_clusters(graph)
        elif self.clusters == "pairs":
            added = pair_clusters(graph)
        run = start_run(build_regions(graph, self.edges, added, node_order(graph, self.order)), init, context)
        return State(run, self._iterate(run))

    def _iterate(self, run: Run) -> Iterator[Progress | None]:
        """Iterations, one Progress each; None between pieces of work."""
        history: list[float] = []
        while True:
            due = run.iteration < EARLY or run.iteration % self.rounding == 0
            yield from run.passes(True)
            if due:
                yield from run.rounded(False, self.polish)
            yield from run.passes(False)
            if due:
                yield from run.rounded(True, self.polish)
            run.iteration += 1
            history.append(run.low)
            done = False
            if len(history) > SPAN:
                done = run.low - history[-1 - SPAN] <= self.tolerance * max(1.0, abs(run.low))
            k = run.iteration
            certify = done or run.meets(run.low) or k.bit_count() == 1 or k % SPAN == 0
            yield Progress(
                labels=run.labels if due else None,
                bound=run.bound() if certify else None,
                done=done,
                info={"running_bound": run.low},
            )

    def step(self, state: State) -> Progress:
        """One iteration, or the part of it that fits between two looks at the clock."""
        return advance(state.work)

    def finish(self, state: State) -> Final:
        run = state.run
        graph, d = run.regions.graph, run.regions.dag
        inside = int((d.target >= graph.n).sum())
        note = f"{len(d.mode)} regions ({len(run.regions.clusters)} clusters), {inside} messages between factors"
        return Final(labels=run.labels, bound=run.bound(), state=run.dual(), note=note)


def advance(work: Iterator[Progress | None]) -> Progress:
    """Work until something is to be reported, or for about a tenth of a second."""
    clock = time.perf_counter()
    for progress in work:
        if progress is not None:
            return progress
        if time.perf_counter() - clock > STEP:
            return Progress(iterations=0)
    raise AssertionError("an iteration never ends")
