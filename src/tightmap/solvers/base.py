"""The one shape every solver has (start, step, finish) and the small records that cross it.

A solver is a frozen dataclass whose fields are its options.  The driver in ``solve.py`` owns the clock, the
iteration count, the incumbent, the callback, the trace and the status; a solver only knows how to begin, how to
advance by one step (a sweep, or at most about 0.1 s of work) and what it leaves behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tightmap import clock
from tightmap.certificate import Proof
from tightmap.energy import energy
from tightmap.graph import Graph

Labels = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Init:
    """Where to start, already translated to the canonical variables of the Graph.

    At most one of ``labels`` and ``relaxed`` is given.  ``state`` is whatever an earlier solver of the same or of
    another method left in ``Result.state``; a solver uses it when it recognises its type and ignores it otherwise.
    """

    labels: Labels | None = None
    relaxed: Vector | None = None  # flat, in the layout of graph.arrays.unary
    state: Any = None


class Incumbent:
    """The best labelling and the best bound of a run, whoever found them; energies are canonical."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.labels: npt.NDArray[np.integer] = np.zeros(graph.n, dtype=graph.label_type)
        self.energy = float("inf")  # a forbidden entry costs graph.hard
        self.bound = -float("inf")  # a certified one
        self._proof = Proof(graph)

    def offer(self, labels: npt.NDArray[np.integer] | None, known: float | None = None) -> bool:
        """Keep a labelling if it is the best so far; ``known`` is its energy where that was just computed."""
        if labels is None:
            return False
        value = energy(self.graph, labels) if known is None else known
        if not value < self.energy:
            return False
        self.labels, self.energy = labels.astype(self.graph.label_type), value
        return True

    def raise_bound(self, bound: float | None) -> None:
        if bound is not None and bound > self.bound:
            self.bound = bound

    @property
    def feasible(self) -> bool:
        """The labelling violates no hard constraint."""
        return self.energy <= self.graph.hard_threshold

    def proven(self) -> bool:
        """The bound meets the energy."""
        return self._proof.holds(self.labels, self.energy, self.bound)


@dataclass(frozen=True)
class Context:
    """What the driver tells a solver about the run: seed, threads and the deadline."""

    seed: int = 0
    threads: int = 1
    deadline: float | None = None  # on tightmap.clock, which stands still while kernels are compiled
    max_iterations: int | None = None  # a step that makes several iterations makes no more than are left
    incumbent: Incumbent | None = None  # of the whole run, to read and to offer to; only ``auto`` needs it
    shared: Callable[[], float] | None = None  # iterations left to several methods together

    def remaining(self) -> float:
        """Seconds left (inf without a time limit); long sweeps look here and return early when it is <= 0."""
        return float("inf") if self.deadline is None else self.deadline - clock.now()

    def iterations_left(self, made: int) -> float:
        """How many iterations a method that made some already may still make (inf without a limit)."""
        if self.shared is not None:
            return self.shared()
        return float("inf") if self.max_iterations is None else self.max_iterations - made

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


@dataclass
class Progress:
    """What one step found.  Everything is optional.

    labels  a candidate labelling (canonical variables); the driver evaluates it and keeps the best
    bound   a certified lower bound of the energy (graph.constant included), never the running value of the method
    done    the method has converged and further steps would change nothing
    iterations  how many iterations of the method this step made (for limits and reports)
    info    extra columns of the trace (residual, rho, ...)
    energy  of the labels, where the method has just computed it (energy.energy): it is not computed again
    pending  the step ended in the middle of something whose result is still to come; says nothing against the method
    """

    labels: Labels | None = None
    bound: float | None = None
    done: bool = False
    iterations: int = 1
    info: dict[str, float] = field(default_factory=dict)
    pending: bool = False
    energy: float | None = None


@dataclass
class Final:
    """What a solver leaves behind: a last candidate, a last certified bound, and its state for warm starts."""

    labels: Labels | None = None
    bound: float | None = None
    state: Any = None
    note: str = ""  # one sentence for Result.summary(): what was done and why (which decomposition, which fallback)


@dataclass(frozen=True)
class Solver(ABC):
    """Base of all methods.  Sub-classes are frozen dataclasses; their fields are the options of the method."""

    name: ClassVar[str]
    summary: ClassVar[str]  # one line for `tightmap methods`
    max_order: ClassVar[int | None] = None  # None: any order
    needs: ClassVar[str] = "any model"  # "binary", "metric pairwise", ... for people
    gives_bound: ClassVar[bool] = False
    handles_inf: ClassVar[bool] = True  # False: hard constraints are searched as large finite costs

    def check(self, graph: Graph) -> None:
        """Raise ModelError, naming the first offending factor, when the method cannot handle the model."""
        if self.max_order is not None and graph.order > self.max_order:
            from tightmap.errors import ModelError

            sizes = np.diff(graph.arrays.scope_start)
            first = int(np.argmax(sizes > self.max_order))
            raise ModelError(
                f"method {self.name!r} takes factors of at most {self.max_order} variables, but the factor on "
                f"variables {graph.original_scope(first)} has {int(sizes[first])}; try method 'admm' or 'srmp'"
            )

    @abstractmethod
    def start(self, graph: Graph, init: Init, context: Context) -> Any:
        """Allocate and initialise the state of one run."""

    @abstractmethod
    def step(self, state: Any) -> Progress:
        """Advance by one sweep (or about 0.1 s) and report."""

    def adopt(self, state: Any, labels: Labels) -> None:
        """Another method has found these labels: go on from them where that makes sense (by default it does not)."""
        return

    def finish(self, state: Any) -> Final:
        """Called once, after the last step or an interruption."""
        return Final(state=state)
