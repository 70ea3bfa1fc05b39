"""What the methods that hand a model to another program have in common.

The model becomes tables (whole.py), which a process of its own searches (worker.py).  Here its messages are awaited, a
slice of time in every step, and taken for what they are: labellings, whose energy is computed anew; bounds of the sum
of whole costs, from which the error of the scaling is subtracted; and the end of the search.

An iteration is a labelling that the program found.  Without a time limit, when only iterations are counted, what comes
on the way at some moment of the clock ("steady" is false) is passed over, so that the result does not depend on it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from tightmap.errors import ModelError, OptionError, WorkerError
from tightmap.graph.graph import Graph
from tightmap.moves.context import Context, Incumbent
from tightmap.moves.feasibility.engine import infeasible_bound
from tightmap.runtime.memory import require
from tightmap.runtime.pace import SLICE
from tightmap.solvers.base import Final, Init, Progress, Solver
from tightmap.solvers.engines.whole import Whole, table_entries, whole_costs
from tightmap.solvers.engines.worker import GONE, Message, Worker, hire, release
from tightmap.solvers.start_labels import descended


@dataclass
class State:
    graph: Graph
    context: Context
    incumbent: Incumbent
    whole: Whole | None = None
    worker: Worker | None = None
    known: int | None = None  # cost of the labelling that the search began with, where it breaks no hard constraint
    bound: float = -math.inf
    done: bool = False
    note: str = ""
    memory: dict[str, Any] = field(default_factory=dict)  # of a method that reads what the library prints


@dataclass(frozen=True)
class External(Solver):
    """A method that another program carries out."""

    module: ClassVar[str]  # the package that has to be installed
    program: ClassVar[str]  # its name for people
    search: ClassVar[str]  # the module that talks to it, in another process
    entries: ClassVar[int]  # table entries of the largest model that is taken
    cuts: ClassVar[bool] = True  # entries that alone cost more than the best labelling are as good as forbidden
    keeps: ClassVar[bool] = True  # the process may be used again

    @classmethod
    def installed(cls) -> bool:
        return find_spec(cls.module) is not None

    def __post_init__(self) -> None:
        if not self.installed():
            raise OptionError(
                f"method {self.name!r} needs {self.program}, which is not installed: "
                f'pip install "tightmap[{self.name}]"'
            )

    def check(self, graph: Graph) -> None:
        super().check(graph)
        entries = table_entries(graph)
        if entries.sum() <= self.entries:
            return
        if entries.max() > self.entries:
            first = int(np.argmax(entries > self.entries))
            raise ModelError(
                f"method {self.name!r} writes factors as tables, {self.entries} entries at most, but the factor on "
                f"variables {graph.original_scope(first)} has about {entries[first]:.3g}; try method 'auto'"
            )
        raise ModelError(
            f"method {self.name!r} takes tables of at most {self.entries} entries in all, but those of this model "
            f"have {entries.sum():.3g}; try method 'auto'"
        )

    def start(self, graph: Graph, init: Init, context: Context) -> State:
        require(64.0 * table_entries(graph).sum(), f"the tables of method {self.name!r}")
        incumbent = context.incumbent_of(graph)
        incumbent.offer(descended(graph, init, context))
        return State(graph, context, incumbent)

    @abstractmethod
    def problem(self, state: State, whole: Whole) -> dict[str, Any]:
        """What the search is told besides the tables: options, the seed, where to start."""

    def overheard(self, state: State, line: str) -> Message:
        """What a line that the library printed says; nothing by default."""
        return {}

    def step(self, state: State) -> Progress:
        if state.worker is None:
            if not state.done:
                self._begin(state)
            return self._report(state, 0)
        among_others = state.context.shared is not None  # which have the cores while it is not our turn
        if among_others:
            state.worker.pause(False)
        message = state.worker.next(min(SLICE, max(state.context.remaining(), 0.0)))
        if among_others and not (message is not None and "end" in message):
            state.worker.pause(True)
        if message is not None and "line" in message:
            message = self.overheard(state, message["line"])
        if message and not message.get("steady", True) and not self._timed(state):
            message = None
        if not message:
            return self._report(state, 0)
        self._hear(state, message)
        return self._report(state, 1 if "labels" in message or state.done else 0)

    def _report(self, state: State, iterations: int) -> Progress:
        return Progress(
            labels=state.incumbent.wide_labels,
            energy=state.incumbent.energy,
            bound=state.bound,
            done=state.done,
            iterations=iterations,
            pending=not state.done,
        )

    def _begin(self, state: State) -> None:
        best, labels = state.incumbent, state.incumbent.wide_labels
        state.whole = whole = whole_costs(state.graph, best.energy if best.feasible else math.inf, self.cuts)
        state.known = whole.cost(labels) if best.feasible else None
        if state.known == 0:  # every table at its least entry
            self._raise(state, 0)
            state.done = True
            return
        start = labels.tolist() if state.known is not None else None
        state.worker = hire(self.search)
        state.worker.give(
            whole.arrays()
            | {"seed": state.context.seed, "known": state.known, "start": start}
            | self.problem(state, whole)
        )

    def _raise(self, state: State, units: int) -> None:
        assert state.whole is not None
        state.bound = max(state.bound, state.whole.bound(state.graph, units))

    def _hear(self, state: State, message: Message) -> None:
        if message is GONE or "error" in message:
            self._fail(state, message)
            return
        if "labels" in message:
            state.incumbent.offer(np.array(message["labels"], dtype=np.int64))
        if "units" in message:
            self._raise(state, int(message["units"]))
        if "end" in message:
            self._finish_search(state, message["end"])

    def _fail(self, state: State, message: Message) -> None:
        """The program failed: an error, but among other methods, which go on, only the end of this one."""
        assert state.worker is not None
        worker, state.worker, state.done = state.worker, None, True
        worker.end()
        why = message.get("error", f"its process ended without an answer (exit code {worker.process.returncode})")
        state.note = f"{self.program} failed: {why}"
        if state.context.shared is None:
            raise WorkerError(f"method {self.name!r}: {state.note}")

    def _timed(self, state: State) -> bool:
        """The clock may have a say: there is a time limit, or nothing but the end of the search ends the run."""
        return state.context.deadline is not None or not state.context.limited

    def _finish_search(self, state: State, how: str) -> None:
        """``how``: "optimal" (with what was told), "infeasible", or another word, which proves nothing."""
        assert state.whole is not None and state.worker is not None
        state.done = True
        if how == "none better" and state.known is not None:
            self._raise(state, state.known)
        elif how == "infeasible" and state.whole.complete and not state.incumbent.feasible and state.graph.hard > 0.0:
            state.bound = max(state.bound, infeasible_bound(state.graph))
        worker, state.worker = state.worker, None
        if self.keeps:
            release(worker)
        else:
            worker.end()

    def finish(self, state: State) -> Final:
        if state.worker is not None:
            state.worker.end()
            state.worker = None
        return Final(labels=state.incumbent.wide_labels, bound=state.bound, note=state.note)
