"""What SRMP and MPLP share: messages on a region graph, rounding, iterations until the bound stalls, tightening.

Work is written as generators that yield a Progress after an iteration and None between its pieces (solvers/stages.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tightmap.energy.duals import Dual, given_messages
from tightmap.energy.energies import energy
from tightmap.graph.graph import FloatArray
from tightmap.moves.context import Context, Labels
from tightmap.moves.coordinate_descent import local_minimum
from tightmap.runtime.pace import SLICE, time_left
from tightmap.solvers.base import Final, Init, Progress
from tightmap.solvers.regions.clusters import pair_clusters
from tightmap.solvers.regions.kernels import Buffers, certified_bound, make_buffers
from tightmap.solvers.regions.messages import carry, from_plain, to_plain
from tightmap.solvers.regions.plan import Plan, make_plan
from tightmap.solvers.regions.regions import Regions, build_regions
from tightmap.solvers.regions.singleton_consistency import singleton_clusters
from tightmap.solvers.regions.sweeps import sweep
from tightmap.solvers.regions.tighten import best_triplets, frustrated_cycles, reparametrised_pairs

GRACE = 0.2  # seconds that computing the last bound may take after the time limit
SPAN = 10  # the method has converged when the bound gains next to nothing in so many iterations


class Run(ABC):
    """Messages on a region graph, and what has been found with them."""

    def __init__(self, regions: Regions, context: Context) -> None:
        self.context = context
        self.use(regions)
        self.neg: FloatArray = np.zeros(regions.entries)  # negated messages
        self.iterations = 0
        self.low = -math.inf  # value of the bound, before allowances, as far as it is known
        # the best labelling that these messages were rounded to, or that the run was given: clusters are scored with it
        self.rounding: Labels | None = None
        self.rounding_energy = math.inf

    def use(self, regions: Regions) -> None:
        """Work on this region graph from now on."""
        self.regions = regions
        self.buffers: Buffers = make_buffers(regions)
        self.plan: Plan = make_plan(regions)

    def accept(self, init: Init) -> None:
        """Begin with the messages of an earlier run where there are any."""
        graph, native = self.regions.graph, init.state.native if isinstance(init.state, Dual) else None
        messages = given_messages(init, graph)
        if isinstance(native, tuple) and isinstance(native[0], Regions) and native[0].graph is graph:
            before: Regions = native[0]
            if before.clusters:
                edges, order = self.regions.edges, self.regions.order
                self.use(build_regions(graph, edges, before.clusters, order, self.context))
            self.neg = carry(before, native[1], self.regions)
        elif messages is not None:
            self.neg = from_plain(self.regions, messages)
        if init.labels is not None:
            self.offer(init.labels)

    def extend(self, clusters: Sequence[tuple[int, ...]]) -> None:
        """Go on with the same messages on a larger region graph."""
        old = self.regions
        known = set(old.clusters)
        fresh = [c for c in clusters if c not in known]
        larger = build_regions(old.graph, old.edges, (*old.clusters, *fresh), old.order, self.context)
        self.neg = carry(old, self.neg, larger)
        self.use(larger)

    @abstractmethod
    def iteration(self, rounding: bool, polish: bool) -> Iterator[None]:
        """One iteration of the method; sets ``low`` when it knows the bound."""

    def before_scoring(self) -> Iterator[None]:
        """What a method does before clusters are scored; nothing by default."""
        yield from ()

    def sweep(self, neg: FloatArray, action: int, labels: Labels, low: FloatArray) -> Iterator[None]:
        """A pass over the sequence in slices of time."""
        g, d = self.regions.graph.arrays, self.regions.dag
        at, end = 0, len(d.sequence)
        while at < end:
            left = time_left(self.context, SLICE)
            at = sweep(g, d, self.plan, neg, action, labels, low, at, end, self.buffers, left)
            yield

    def rounded(self, action: int, polish: bool) -> Iterator[None]:
        """Label the variables one after the other, and keep the result if it is the best rounding so far."""
        graph = self.regions.graph
        labels = np.full(graph.n, -1, dtype=np.int64)
        neg = self.neg.copy() if self.plan.copied[0] else self.neg
        yield from self.sweep(neg, action, labels, np.zeros(1))
        self.offer(local_minimum(graph, labels, self.context) if polish else labels)

    def offer(self, labels: Labels) -> None:
        value = energy(self.regions.graph, labels)
        if value < self.rounding_energy:
            self.rounding, self.rounding_energy = labels, value

    def certificate(self, left: float | None = None) -> float:
        """The certified bound; -inf when it is not known at the time limit (or after so many seconds)."""
        bound, raw = certified_bound(self.regions, self.neg, time_left(self.context) if left is None else left)
        if raw > -math.inf:
            self.low = raw
        return bound

    def nearly_proven(self) -> bool:
        """Is the bound so close to the energy of the best rounding that a certificate is worth its time?"""
        graph = self.regions.graph
        slack = max(1e-9 * graph.magnitude(self.rounding_energy), 1.001 * graph.quantum)
        return self.low >= self.rounding_energy - slack

    def final(self) -> Final:
        regions, neg = self.regions, self.neg
        n, d = regions.graph.n, regions.dag
        note = (
            f"{len(d.mode)} regions ({len(regions.clusters)} added), "
            f"{int((d.target >= n).sum())} of {len(d.target)} messages between factors"
        )
        dual = Dual(regions.graph, lambda: to_plain(regions, neg), native=(regions, neg))
        return Final(labels=self.rounding, bound=self.certificate(GRACE), state=dual, note=note)


@dataclass(frozen=True)
class Pace:
    """How iterations are run: rounding every so many (and in the first ``early``), until 10 gain next to nothing."""

    rounding: int
    polish: bool
    tolerance: float
    early: int


def iterate(run: Run, pace: Pace, limit: int | None = None, last: bool = False) -> Iterator[Progress | None]:
    """Iterations until the bound stalls or ``limit`` is reached; ``last``: then the method has converged."""
    history: list[float] = []
    count = 0
    while limit is None or count < limit:
        k = run.iterations
        due = k < pace.early or k % pace.rounding == 0
        yield from run.iteration(due, pace.polish)
        run.iterations += 1
        count += 1
        certified = None
        if run.nearly_proven() or run.iterations.bit_count() == 1 or run.iterations % SPAN == 0:
            certified = run.certificate()
        history.append(run.low)
        stalled = False
        if len(history) > SPAN:
            stalled = run.low - history[-1 - SPAN] <= pace.tolerance * run.regions.graph.magnitude(run.low)
        labels = run.rounding if due else None
        info = {"running_bound": run.low}
        yield Progress(labels, certified, done=stalled and last, info=info, pending=certified is None)
        if stalled and not last:
            return


def tighten(run: Run, pace: Pace, kinds: str, first: int, inner: int, wanted: int) -> Iterator[Progress | None]:
    """Iterate until the bound stalls, add the clusters that promise most, and again until none promises anything.

    kinds   "triplets" on existing pairs, "singletons", "cycles", or "all": of the first two the ones that promise more,
            where neither promises anything cycles; beside factors of higher order triplets, then cycles
    wanted  clusters per round, 0: a tenth of the number of pairs, between 20 and 2000
    """
    yield from iterate(run, replace(pace, tolerance=max(pace.tolerance, 1e-6)), first)
    graph = run.regions.graph
    if graph.order > 2:  # pairs inside larger factors take part in cycles
        run.extend(pair_clusters(graph, shared=1))
        yield from iterate(run, replace(pace, tolerance=max(pace.tolerance, 1e-6)), first)
    while True:
        yield from run.before_scoring()
        pairs = reparametrised_pairs(run.regions, run.neg)
        labels = run.rounding if run.rounding is not None else np.zeros(graph.n, dtype=np.int64)
        least = 1e-9 * run.regions.graph.magnitude(run.low)
        count = wanted or min(2000, max(20, len(pairs.region) // 10))
        added: list[tuple[int, ...]] = []
        gain = 0.0
        yield None
        if kinds in ("all", "triplets"):
            added, gain = best_triplets(run.regions, pairs, labels, count, least)
            yield None
        if kinds == "singletons" or (kinds == "all" and graph.order <= 2):
            left = run.context.remaining
            more, extra = singleton_clusters(run.regions, run.neg, pairs, labels, count, least, left)
            yield None
            if extra > gain:
                added, gain = more, extra
        if kinds in ("all", "cycles") and gain <= 1e-6 * run.regions.graph.magnitude(run.low):
            more, extra = frustrated_cycles(run.regions, pairs, count, least)
            yield None
            if extra > gain:
                added, gain = more, extra
        if not added:
            yield from iterate(run, pace, last=True)
            return
        run.extend(added)
        yield None
        yield from iterate(run, replace(pace, tolerance=max(pace.tolerance, 1e-6)), inner)
