"""The run of a partitioned model as a sequence of steps, each of which can be done again.

    survey   kappa, the unit of the penalty, and a checksum of the costs
    sweep    some iterations of a cycle; at every CHECK-th one the residual says whether it is over
    round    the largest entry of every vector is a proposal
    descend  even tiles, odd tiles, and once more
    fuse     with the labelling so far, even tiles, then odd ones (from the second cycle on)
    bound    after the first cycle: chains of even tiles, then of odd ones

Where a run is, is a small record; with a checkpoint it is kept after every step, and a later run goes on from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tightmap.errors import ModelError, OptionError
from tightmap.graph.graph import Kind
from tightmap.graph.stencil import Stencil
from tightmap.solvers.admm.grid_layout import fits
from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.tiles.engines import Engine, Inline, Processes
from tightmap.solvers.admm.tiles.rows import DIRECTIONS, LARGEST, GridRows
from tightmap.solvers.admm.tiles.store import ITERATES, LABELLINGS, layouts
from tightmap.solvers.admm.tiles.sweep import Segment
from tightmap.solvers.admm.tiles.worker import Step

CHECK = 50  # iterations between two looks at the residual: a multiple of every number of iterations per exchange
DEPTH = 10  # iterations per exchange
DESCENTS = 4  # steps of descent, even and odd tiles in turn
ENGINES = ("processes", "ray", "inline")


@dataclass(frozen=True)
class Plan:
    """Options of a partitioned run.  Workers, engine, visit and depth change no label."""

    workers: int = 1
    engine: str = "processes"
    checkpoint: str | None = None
    visit: int | None = None  # tiles in memory at a time, all of a worker's by default
    depth: int = DEPTH  # iterations per exchange: 2 depth rows of the neighbours are swept as well
    cycles: tuple[Cycle, ...] = (Cycle(), Cycle(relax=1.6))
    tolerance: float = 1e-5
    bound_rounds: int = 20
    seed: int = 0
    double: bool = False


@dataclass(frozen=True)
class Position:
    """Where a run is."""

    phase: str = "survey"
    kappa: float = 0.0
    checksum: int = 0
    cycle: int = 0
    iteration: int = 0  # within the cycle
    total: int = 0
    side: int = 0  # which arrays hold the iterates
    part: int = 0  # of the phase
    best: str = ""  # the array with the best labelling
    proposal: str = ""
    residual: float = math.inf
    energy: float = math.inf
    bound: float = -math.inf
    error: float = 0.0  # by how much rounding may have changed the bound


def check_model(model: GridRows) -> None:
    """ModelError for what the sweeps cannot do."""
    shape = model.unary.shape
    if len(shape) != 3 or shape[0] < 1 or shape[1] < 2 or shape[2] < 2:
        raise ModelError(f"unaries must be (height, width >= 2, labels >= 2), got {shape}")
    if model.directions not in (2, 4):
        raise ModelError(f"weights must be for two directions or, with diagonals, four, got {model.directions}")
    if not isinstance(model.weights, tuple) and model.weights.shape != (model.height, model.directions, model.width):
        raise ModelError(f"weights must be (height, directions, width), got {model.weights.shape}")
    if isinstance(model.weights, tuple) and not (np.abs(model.weights) <= LARGEST).all():
        raise ModelError(f"weights must be finite and no larger than {LARGEST:g}")
    profile = np.array(model.profile)
    finite = len(profile) == model.labels and bool((np.abs(profile) <= LARGEST).all())
    if not finite or profile[0] != 0.0 or (np.diff(profile) < 0).any() or not fits(_outline(model)):
        raise ModelError(
            "the cost of a difference of labels must be 0 at 0, rise, and level off at a difference of 8 or less"
        )
    if model.tile < 2:
        raise OptionError(f"tile must be at least 2 rows, got {model.tile}")


def _outline(model: GridRows) -> Stencil:
    weights = np.zeros((model.directions, 0, 0))
    directions = np.array(DIRECTIONS[: model.directions])
    return Stencil(0, model.width, model.labels, Kind.POTTS, directions, weights, np.array(model.profile))


def make_engine(model: GridRows, plan: Plan) -> Engine:
    arrays = layouts(model, np.float64 if plan.double else np.float32)
    if plan.engine == "ray":
        from tightmap.solvers.admm.tiles.ray_engine import RayEngine

        return RayEngine(model, arrays, plan.workers, plan.checkpoint, plan.visit)
    kind = Inline if plan.engine == "inline" or plan.workers == 1 else Processes
    return kind(model, arrays, plan.workers, plan.checkpoint, plan.visit)


class Run:
    """One run; ``advance`` does one step, ``conclude`` makes a labelling of what there is."""

    def __init__(self, model: GridRows, plan: Plan, progress: Callable[[Position], Any] | None = None) -> None:
        check_model(model)
        if plan.engine not in ENGINES:
            raise OptionError(f"engine must be one of {', '.join(ENGINES)}, got {plan.engine!r}")
        if plan.workers < 1:
            raise OptionError(f"workers must be at least 1, got {plan.workers}")
        self.model = model
        depth = max(1, min(plan.depth, model.tile // 2))
        self.plan = replace(plan, depth=max(k for k in range(1, depth + 1) if CHECK % k == 0))
        self.engine = make_engine(model, self.plan)
        self.progress = progress
        self.concluding = False  # what follows is not kept: a later run goes on with the cycle
        self.position = self._resumed()

    # ------------------------------------------------------------------------------------------------ positions

    def _identity(self) -> list[Any]:
        """What must be the same for a checkpoint to be of use."""
        p, m = self.plan, self.model
        weights = list(m.weights) if isinstance(m.weights, tuple) else "by edge"
        cycles = [list(asdict(c).values()) for c in p.cycles]
        return [list(m.unary.shape), list(m.profile), weights, m.tile, cycles, p.tolerance, p.seed, p.double]

    def _resumed(self) -> Position:
        saved = self.engine.saved()
        if saved is None:
            return Position()
        position = Position(**saved["position"])
        survey = self.engine.run(Step("survey"))
        if repr(saved["identity"]) != repr(self._plain()) or _checksum(survey) != position.checksum:
            raise OptionError(f"checkpoint {self.plan.checkpoint}: belongs to another model or other options")
        return position

    def _plain(self) -> Any:
        """The identity as it comes back from a file."""
        import json

        return json.loads(json.dumps(self._identity()))

    def _go(self, **changes: Any) -> None:
        self.position = replace(self.position, **changes)
        if not self.concluding:
            self.engine.save({"identity": self._identity(), "position": asdict(self.position)})
        if self.progress is not None:
            self.progress(self.position)

    @property
    def done(self) -> bool:
        return self.position.phase == "done"

    @property
    def has_labels(self) -> bool:
        return self.position.best != ""

    # ------------------------------------------------------------------------------------------------ steps

    def advance(self, most: float = math.inf) -> None:
        """One step, of no more than so many iterations."""
        getattr(self, f"_{self.position.phase}")(most)

    def conclude(self) -> None:
        """The iterates of a first cycle that is cut off become labels.

        A checkpoint stays in the middle of the cycle, with its iterates: a run that goes on from there ends with the
        labels of one that was never cut.
        """
        if self.position.phase == "sweep" and self.position.iteration > 0:
            self.concluding = True
            self._go(phase="round")
        while self.position.phase in ("round", "descend", "fuse", "energy"):
            self.advance()

    def _survey(self, _: float) -> None:
        survey = self.engine.run(Step("survey"))
        size = math.fsum(weight for weight, _ in survey) * max(self.model.profile)
        kappa = size / (self.model.height * self.model.width)
        self._go(phase="sweep", kappa=kappa or 1.0, checksum=_checksum(survey))

    def _sweep(self, most: float) -> None:
        p, cycle = self.position, self.plan.cycles[self.position.cycle]
        count = int(max(1, min(self.plan.depth, CHECK - p.iteration % CHECK, most)))
        segment = Segment(
            p.cycle, p.iteration, count, cycle.rho0 * p.kappa, cycle.growth, cycle.relax, cycle.noise * p.kappa,
            self.plan.seed, p.side, self.plan.double,
        )  # fmt: skip
        halo = {f"{name}.{p.side}": 2 * count for name in ITERATES} if p.iteration > 0 else {}
        residuals = self.engine.run(Step("sweep", {"segment": segment}, halo))
        iteration = p.iteration + count
        residual, over = p.residual, False
        if iteration % CHECK == 0 or iteration >= cycle.limit:
            residual = math.fsum(residuals) / (self.model.height * self.model.width)
            over = residual <= self.plan.tolerance or iteration >= cycle.limit
        self._go(
            phase="round" if over else "sweep", iteration=iteration, total=p.total + count, side=1 - p.side,
            residual=residual, part=0,
        )  # fmt: skip

    def _free(self, *taken: str) -> str:
        return next(name for name in LABELLINGS if name not in taken)

    def _round(self, _: float) -> None:
        p = self.position
        into = self._free(p.best)
        self.engine.run(Step("round", {"side": p.side, "double": self.plan.double, "into": into}))
        self._go(phase="descend", proposal=into, part=0)

    def _descend(self, _: float) -> None:
        p = self.position
        into = self._free(p.best, p.proposal)
        options = {"colour": p.part % 2, "source": p.proposal, "proposal": None, "into": into}
        self.engine.run(Step("improve", options, {p.proposal: 1}))
        if p.part + 1 < DESCENTS:
            self._go(proposal=into, part=p.part + 1)
        elif p.best == "":
            self._go(phase="energy", best=into, proposal="", part=0)
        else:
            self._go(phase="fuse", proposal=into, part=0)

    def _fuse(self, _: float) -> None:
        p = self.position
        into = self._free(p.best, p.proposal)
        options = {"colour": p.part, "source": p.best, "proposal": p.proposal, "into": into}
        self.engine.run(Step("improve", options, {p.best: 1}))
        self._go(phase="fuse" if p.part == 0 else "energy", best=into, part=1 - p.part)

    def _energy(self, _: float) -> None:
        p = self.position
        energy = math.fsum(self.engine.run(Step("energy", {"labels": p.best}, {p.best: 1})))
        bounded = p.cycle > 0 or self.plan.bound_rounds == 0
        self._go(energy=energy, phase=self._after_cycle() if bounded else "bound", **self._next_cycle(bounded))

    def _bound(self, _: float) -> None:
        options = {"colour": 0, "rounds": self.plan.bound_rounds}
        even = self.engine.run(Step("bound", options))
        seams = {}
        for t in range(1, len(even), 2):
            below = even[t + 1][2] if t + 1 < len(even) else None
            seams[t] = (even[t - 1][3], below)
        odd = self.engine.run(Step("bound", {**options, "colour": 1}, {}, seams))
        parts = [a if a is not None else b for a, b in zip(even, odd, strict=True)]
        error = math.fsum(part[1] for part in parts)
        self._go(
            bound=math.fsum(part[0] for part in parts), error=error, phase=self._after_cycle(), **self._next_cycle(True)
        )

    def _after_cycle(self) -> str:
        return "sweep" if self.position.cycle + 1 < len(self.plan.cycles) else "done"

    def _next_cycle(self, go_on: bool) -> dict[str, Any]:
        if not go_on:
            return {}
        return {"cycle": self.position.cycle + 1, "iteration": 0, "side": 0, "residual": math.inf, "part": 0}


def _checksum(survey: list[tuple[float, int]]) -> int:
    total = 0
    for _, code in survey:
        total = (total * 1_000_003 + code) % 2**53
    return total
