"""A run on the smaller model that presolve leaves; whatever it finds is told to the run of the whole model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tightmap.energy.certificate import proves_infeasible
from tightmap.moves.context import Context, Incumbent
from tightmap.solvers.auto.presolve import Presolved
from tightmap.solvers.auto.run import Run
from tightmap.solvers.base import Final, Init, Progress

PRESOLVED = "presolve"  # its place among the states of the methods


def beginning(presolved: Presolved, init: Init, context: Context) -> tuple[Init, Context]:
    """What a run on the smaller model starts from, with an incumbent of its own."""
    given = None if init.labels is None else presolved.inward(init.labels)
    own = Incumbent(presolved.graph)
    own.offer(presolved.inward(context.incumbent_of(presolved.outer).wide_labels))
    return replace(init, labels=given), replace(context, incumbent=own)


@dataclass
class ReducedRun:
    """Steps of ``run``, which solves the smaller model.

    Should that be solved while rounding leaves something open in the whole model, another run solves that one.
    """

    presolved: Presolved
    run: Run
    incumbent: Incumbent  # of the whole model
    whole: Callable[[], Run]  # begins a run of the whole model
    told: float = np.inf  # the lowest energy in the smaller model that the incumbent has been told of
    other: Run | None = None  # of the whole model

    def __post_init__(self) -> None:
        self.run.outside = self.presolved.user_energy

    def step(self) -> Progress:
        if self.other is not None:
            return self.other.step()
        progress = self.run.step()
        self._tell()
        own = self.run.incumbent
        solved = own.proven() or proves_infeasible(self.presolved.graph, own.bound)
        if solved and not self.incumbent.proven():
            self.run.finish()
            self.other = self.whole()
            return Progress(iterations=progress.iterations)
        return Progress(done=progress.done or solved, late=progress.late, iterations=progress.iterations)

    def _tell(self) -> None:
        own = self.run.incumbent
        if own.energy < self.told:
            self.told = own.energy
            self.incumbent.offer(self.presolved.outward(own.wide_labels))
        self.incumbent.raise_bound(self.presolved.bound(own.bound))

    def finish(self) -> Final:
        if self.other is not None:
            return self.other.finish()
        final = self.run.finish()
        self._tell()
        assert isinstance(final.state, dict)
        note = f"{self.presolved.report}\n  {final.note}".rstrip()
        return replace(final, state={PRESOLVED: self.presolved} | final.state, note=note)
