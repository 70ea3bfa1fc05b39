"""ADMM's option ``workers``: a model that is a regular grid, solved by a partitioned run (programme.py)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from tightmap.energy.certificate import certify
from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import Graph
from tightmap.graph.stencil import Stencil, find_stencil
from tightmap.moves.context import Context, Labels
from tightmap.solvers.admm.grid_layout import fits
from tightmap.solvers.admm.tiles.programme import Plan, Run
from tightmap.solvers.admm.tiles.rows import DIRECTIONS, GridRows, InMemory
from tightmap.solvers.base import Final, Progress


def make_folder(folder: str) -> str:
    """The folder of a checkpoint, made where there is none."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise OptionError(f"checkpoint {folder}: cannot be a folder ({error.strerror})") from None
    return os.path.abspath(folder)


def grid_rows(graph: Graph, tile: int) -> GridRows:
    """The rows of a grid model that is in memory."""
    stencil = find_stencil(graph, images=False)
    if stencil is None or not fits(stencil):
        raise ModelError(
            "admm: workers need a grid of 4 or 8 neighbours whose factors share one table, Potts or a truncated "
            "difference of labels that levels off within 8"
        )
    shape = (stencil.height, stencil.width, stencil.labels)
    profile = tuple(float(v) for v in stencil.profile)
    weights = _by_row(stencil)
    given = weights if isinstance(weights, tuple) else InMemory(weights, weights.shape)
    return GridRows(InMemory(graph.unary.reshape(shape), shape), profile, given, tile)


def _by_row(stencil: Stencil) -> np.ndarray | tuple[float, ...]:
    """(height, directions, width) weights, or one number a direction where they are equal."""
    places = [DIRECTIONS.index((int(down), int(right))) for down, right in stencil.displacements]
    directions = 4 if max(places) > 1 else 2
    if stencil.equal is not None:
        return tuple(stencil.equal if place in places else 0.0 for place in range(directions))
    weights = np.zeros((stencil.height, directions, stencil.width))
    for place, plane in zip(places, stencil.weights, strict=True):
        weights[:, place] = plane
    return weights


@dataclass
class TiledRun:
    """State of the solver between steps."""

    graph: Graph
    context: Context
    run: Run
    shown: float = float("inf")  # energy of the last labelling that was reported

    @classmethod
    def begin(cls, graph: Graph, context: Context, plan: Plan, tile: int) -> TiledRun:
        return cls(graph, context, Run(grid_rows(graph, tile), plan))

    def step(self) -> Progress:
        run = self.run
        if run.done:
            return Progress(labels=self._fresh(), bound=self._bound(), done=True, iterations=0)
        before = run.position.total
        run.advance(self.context.iterations_left(before))
        p = run.position
        info = {"residual": p.residual, "cycle": float(p.cycle + 1)}
        return Progress(labels=self._fresh(), bound=self._bound(), iterations=p.total - before, info=info)

    def finish(self) -> Final:
        try:
            if not self.run.done and self.run.position.best == "":
                self.run.conclude()
            labels, p = self._fresh(), self.run.position
        finally:
            self.run.engine.close()
        plan = self.run.plan
        note = (
            f"ADMM on {self.run.model.tiles} tiles of {self.run.model.tile} rows, {plan.workers} workers "
            f"({plan.engine}), {p.total} iterations"
        )
        return Final(labels=labels, bound=self._bound(), note=note)

    def _fresh(self) -> Labels | None:
        """The best labelling when it is new."""
        p = self.run.position
        if p.best == "" or not p.energy < self.shown:
            return None
        self.shown = p.energy
        return self.run.engine.read(p.best, 0, self.run.model.height).reshape(-1).astype(np.int64)

    def _bound(self) -> float | None:
        p = self.run.position
        if not np.isfinite(p.bound):
            return None
        return certify(self.graph, self.graph.constant + p.bound, p.error)
