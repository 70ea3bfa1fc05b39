"""One incumbent and one budget: what all methods of a run share.

``Incumbent`` keeps the best labelling and the best certified bound, whoever found them; ``Context`` carries it with the
seed, the threads and what is left of time and iterations.  The driver makes both, and ``auto`` hands them on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import Proof
from tightmap.energy.energies import energy_and_size
from tightmap.graph.graph import Graph
from tightmap.runtime import clock

Labels = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


class Incumbent:
    """The best labelling and the best bound of a run, whoever found them; energies are canonical."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.labels: npt.NDArray[np.integer] = np.zeros(graph.n, dtype=graph.label_type)
        self.energy = float("inf")  # a forbidden entry costs graph.hard
        self.bound = -float("inf")  # a certified one
        # a labelling that coordinate descent leaves as it is, not to be changed
        self.settled: npt.NDArray[np.integer] | None = None
        self._proof = Proof(graph)

    def offer(self, labels: npt.NDArray[np.integer] | None, known: float | None = None) -> bool:
        """Keep a labelling if it is the best so far; ``known`` is its energy where that was just computed."""
        if labels is None:
            return False
        if known is None and self.energy < math.inf and (labels == self.labels).all():
            return False  # methods tell it more than once, and to compare labels takes a tenth of the time
        value, size = energy_and_size(self.graph, labels) if known is None else (known, None)
        if not value < self.energy:
            return False
        self.labels, self.energy = labels.astype(self.graph.label_type), value
        if size is not None:
            self._proof.learn(self.labels, size)
        return True

    def raise_bound(self, bound: float | None) -> None:
        if bound is not None and bound > self.bound:
            self.bound = bound

    @property
    def feasible(self) -> bool:
        """The labelling violates no hard constraint."""
        return self.energy <= self.graph.hard_threshold

    @property
    def wide_labels(self) -> Labels:
        """A copy of the labels in 64 bits, as kernels take them."""
        return self.labels.astype(np.int64)

    def proven(self) -> bool:
        """The bound meets the energy."""
        return self.proven_by(self.bound)

    def proven_by(self, bound: float) -> bool:
        """Whether this certified bound meets the energy."""
        return self._proof.holds(self.labels, self.energy, bound)


@dataclass
class Halt:
    """Tells methods on other threads that the run is over; unlike an event of ``threading`` it can be copied."""

    told: bool = False


@dataclass(frozen=True)
class Context:
    """What the driver tells a solver about the run: seed, threads and the deadline."""

    seed: int = 0
    threads: int = 1
    deadline: float | None = None  # on tightmap.runtime.clock, which stands still while kernels are compiled
    max_iterations: int | None = None  # a step that makes several iterations makes no more than are left
    incumbent: Incumbent | None = None  # of the whole run, to read and to offer to: ``incumbent_of`` asks for it
    shared: Callable[[], float] | None = None  # iterations left to several methods together
    wall: float = math.inf  # the same by time.perf_counter(), compilation included
    reading: clock.Reading | None = None  # how long kernels are being read that nobody had to compile
    over: Halt | None = None  # told when a method that works beside others need not go on

    def remaining(self) -> float:
        """Seconds left (inf without a time limit); long sweeps look here and return early when it is <= 0."""
        if self.over is not None and self.over.told:
            return 0.0
        if self.deadline is None:
            left = math.inf
        else:
            left = self.deadline - clock.now() - (self.reading.too_long() if self.reading is not None else 0.0)
        return left if self.wall == math.inf else min(left, self.wall - time.perf_counter())

    @property
    def limited(self) -> bool:
        """Somebody ends the run: a method that would converge slowly for ever need not stop by itself."""
        return self.deadline is not None or self.max_iterations is not None or self.shared is not None

    def iterations_left(self, made: int) -> float:
        """How many iterations a method that made some already may still make (inf without a limit)."""
        if self.shared is not None:
            return self.shared()
        return float("inf") if self.max_iterations is None else self.max_iterations - made

    def incumbent_of(self, graph: Graph) -> Incumbent:
        """The incumbent of the run, or a new one for a method that is one of several, or works on a graph of its own.

        ``auto`` compares what its methods found, so each has its own there; ``Solver.adopt`` tells it of better ones.
        """
        shared = self.incumbent
        return shared if shared is not None and shared.graph is graph else Incumbent(graph)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)
