"""The one shape every solver has (start, step, finish) and the small records that cross it.

A solver is a frozen dataclass whose fields are its options.  The driver (driver.py) owns the clock, the
iteration count, the incumbent, the callback, the trace and the status; a solver only knows how to begin, how to
advance by one step (a sweep, or at most about 0.1 s of work) and what it leaves behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Labels, Vector
from tightmap.solvers.capabilities import Capabilities


@dataclass(frozen=True)
class Init:
    """Where to start, already translated to the canonical variables of the Graph.

    At most one of ``labels`` and ``relaxed`` is given.  ``state`` is whatever an earlier solver of the same or of
    another method left in ``Result.state``; a solver uses it when it recognises its type and ignores it otherwise.
    """

    labels: Labels | None = None
    relaxed: Vector | None = None  # flat, in the layout of graph.arrays.unary
    state: Any = None


@dataclass
class Progress:
    """What one step found.  Everything is optional.

    labels  a candidate labelling (canonical variables); the driver evaluates it and keeps the best
    bound   a certified lower bound of the energy (graph.constant included), never the running value of the method
    done    the method has converged and further steps would change nothing
    iterations  how many iterations of the method this step made (for limits and reports)
    info    extra columns of the trace (residual, rho, ...)
    energy  of the labels, where the method has just computed it (energies.energy): it is not computed again
    late    what is left of the time is too short for another step: the run ends as if it were over
    pending  the step ended in the middle of something whose result is still to come; says nothing against the method
    """

    labels: Labels | None = None
    bound: float | None = None
    done: bool = False
    iterations: int = 1
    info: dict[str, float] = field(default_factory=dict)
    pending: bool = False
    energy: float | None = None
    late: bool = False


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
    capabilities: ClassVar[Capabilities] = Capabilities()

    @classmethod
    def installed(cls) -> bool:
        """Whether all that the method needs is there: some are carried out by other programs."""
        return True

    def check(self, graph: Graph) -> None:
        """Raise ModelError, naming the first offending factor, when the method cannot handle the model."""
        self.capabilities.check(self.name, graph)

    def optimal_at_once(self, graph: Graph, context: Context) -> bool:
        """Whether the first step ends with the optimum, about as soon as coordinate descent ends with a labelling.

        Then the driver does not descend first.
        """
        return False

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
