"""The two engines of TRW-S: messages of grids (grid.py) and of everything else (general.py).

An engine holds the messages, makes passes over them, and keeps the best labelling that was rounded on the way.
Messages travel between engines in the layout of the certificate, one vector for each end of every edge
(energies.message_offsets).
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT
from tightmap.graph.graph import FloatArray, Graph, Kind
from tightmap.graph.pixel_costs import both
from tightmap.graph.stencil import Stencil, find_stencil
from tightmap.runtime import clock
from tightmap.runtime.pace import EVER, TimeUp
from tightmap.runtime.simd import LANES
from tightmap.runtime.sync import Crew
from tightmap.solvers.engine import Engine
from tightmap.solvers.trws import general, streams
from tightmap.solvers.trws.grid import sweep_eight, sweep_four
from tightmap.solvers.trws.grid_bound import bound_sweep
from tightmap.solvers.trws.strips import (
    DIRECTIONS,
    Strips,
    build_frame,
    chosen_labels,
    fill_strips,
    images_of_messages,
    set_messages,
)

WORTH_THREADS = 1 << 17  # models with fewer message entries run on one thread
NO_UNARIES = np.zeros(0)
WIDEST = 16  # quadratic costs that rise over more differences than this use the parabolas of the general engine


class Passes(NamedTuple):
    """How an iteration, a pass forward and one backward, is made."""

    rounding: bool = True  # labels are chosen on the way
    certify: bool = True  # the bound is wanted
    sparing: bool = False  # of several iterations only the last one chooses labels


BOTH = Passes()


class GeneralMessages(Engine[Passes, FloatArray]):
    """Of any pairwise model, in double precision."""

    blur = 1e-9  # relative: how far off the energy of a rounding may be

    def __init__(
        self,
        graph: Graph,
        order: npt.NDArray[np.int64],
        threads: int = 1,
        name: str = "",
        tables: bool | None = None,
    ) -> None:
        """``name`` of the order where the graph alone decides it; ``tables``: they are laid out in streams or not."""
        self.graph, self.order = graph, order
        laid_out = streams.suits(graph) if tables is None else tables
        self.sweeper = general.build_sweeper(graph, order, name, LANES if laid_out else 1)
        self.streams = None
        if laid_out:
            self.streams = streams.build_streams(graph, order, self.sweeper.later, self.sweeper.start)
        self.entries = graph.m * graph.max_labels if graph.uniform else len(self.sweeper.messages)
        worth = min(threads, general.blocks(self.sweeper) // 4) if self.entries >= WORTH_THREADS else 1
        self.crew = Crew(worth)
        self.labels = np.zeros(graph.n, dtype=np.int64)
        self.best = self.labels.copy()
        self.best_energy = math.inf  # of the best rounding since this was last set to inf, without the constant

    def iterate(self, count: int, how: Passes = BOTH, left: float = EVER) -> tuple[float, float]:
        """Iterations; returns the bound without the constant, and the error that rounding can have made in it.

        TimeUp after ``left`` seconds, with the messages as they were before.
        """
        low, size = -math.inf, 0.0
        until = time.perf_counter() + left
        before = self.sweeper.messages.copy() if left < EVER else None
        for k in range(2 * count):
            left = until - time.perf_counter() if before is not None else EVER
            try:
                energy, low, size = general.half_sweep(
                    self.graph, self.sweeper, self.streams, self.crew, k % 2 == 0, self.labels, how.rounding, left
                )
            except TimeUp:
                if before is not None:
                    self.sweeper.messages[:] = before
                raise
            if how.rounding and energy < self.best_energy:
                self.best_energy = energy
                self.best[:] = self.labels
        return low, UNIT * (size + 4.0 * (self.graph.n + self.graph.m) * abs(low))

    def load(self, content: FloatArray) -> None:
        general.collapse_messages(self.graph, self.sweeper, content)

    def take_over(self, earlier: GeneralMessages) -> bool:
        """Go on from the messages of an engine on the same structure; False where it is not the same."""
        if not (same_structure(earlier.graph, self.graph) and np.array_equal(earlier.order, self.order)):
            return False
        if len(earlier.sweeper.messages) != len(self.sweeper.messages):  # other costs, and so another layout
            return False
        self.sweeper.messages[:] = earlier.sweeper.messages
        return True

    def export(self) -> FloatArray:
        return general.expanded_messages(self.graph, self.sweeper)

    def close(self) -> None:
        del self.sweeper, self.streams


class GridMessages(Engine[Passes, FloatArray]):
    """Of a grid of four or eight neighbours with one table of differences, in single or double precision."""

    def __init__(
        self, graph: Graph, stencil: Stencil, threads: int, dtype: npt.DTypeLike, earlier: object = None
    ) -> None:
        """``earlier``: an engine whose messages this one goes on from, if it has the same structure and precision."""
        self.graph = graph
        self.grid: Strips
        frame = graph.kept_structure(f"strips of trws, {np.dtype(dtype)}", lambda: build_frame(stencil, dtype))
        before = earlier.grid if isinstance(earlier, GridMessages) and earlier._fits(graph, frame) else None
        self.goes_on = before is not None
        self.grid, self.shift = fill_strips(frame, graph.unary, before)
        self.entries = graph.m * stencil.labels
        self.blur = 1e-9 if self.grid.messages.dtype == np.float64 else 1e-6
        self.profile = np.concatenate(([stencil.profile.max()], stencil.profile[1:])).astype(np.float64)
        self.crew = Crew(min(threads, self.grid.strips // 2) if self.entries >= WORTH_THREADS else 1)
        self.energies = np.zeros(self.grid.strips * LANES)
        self._chosen = np.zeros_like(self.grid.chosen)  # the best rounding, in strip order
        self._label_type = graph.label_type
        self.best_energy = math.inf
        self.seconds = dict.fromkeys(("pass", "rounding", "bound"), 0.0)  # of late; "pass" is without rounding

    @property
    def best(self) -> npt.NDArray[np.integer]:
        """The labels of the best rounding (a new array)."""
        return chosen_labels(self.grid._replace(chosen=self._chosen), self._label_type)

    def _pass(self, forward: bool, rounding: bool) -> None:
        self.energies[:] = 0.0
        sweep = sweep_eight if self.grid.eight else sweep_four
        begin = clock.now()
        self.crew.run(sweep, self.grid.strips, self.grid, forward, rounding, self.energies)
        if rounding:
            energy = self.shift + math.fsum(self.energies.tolist())
            if energy < self.best_energy:
                self._chosen[:] = self.grid.chosen
                self.best_energy = energy
        self._took("rounding" if rounding else "pass", clock.now() - begin)

    def _took(self, what: str, seconds: float) -> None:
        """One that was held up says little about the next one."""
        before = self.seconds[what]
        self.seconds[what] = min(seconds, 2.0 * before) if before else seconds

    def expected(self, how: Passes) -> float:
        """Seconds that an iteration will take, by the last ones."""
        known = self.seconds["rounding" if how.rounding else "pass"] or max(self.seconds.values())
        return 2.0 * known + (self.seconds["bound"] or 2.0 * known) * how.certify

    def iterate(self, count: int, how: Passes = BOTH, left: float = EVER) -> tuple[float, float]:
        """As GeneralMessages.iterate, but never cut short: whoever calls asks ``expected`` what there is time for.

        The bound costs a pass more, so it is -inf unless asked for.
        """
        bound = (-math.inf, 0.0)
        for k in range(count):
            rounding = how.rounding and (k == count - 1 or not how.sparing)
            self._pass(True, rounding)
            if how.certify and k == count - 1:
                bound = self._bound()
            self._pass(False, rounding)
        return bound

    def _bound(self) -> tuple[float, float]:
        grid, begin = self.grid, clock.now()
        sums = np.zeros(grid.strips * 2 * LANES)
        rows = np.zeros((self.crew.threads + 1, grid.span * (grid.directions - 1) * grid.labels))
        bare = grid._replace(unary=NO_UNARIES)  # it has its own: no kernel for each type of the others
        self.crew.run(bound_sweep, grid.strips, bare, *both(self.graph.unary), self.profile, sums, rows)
        low, size = (math.fsum(part) for part in sums.reshape(-1, 2, LANES).transpose(1, 0, 2).reshape(2, -1).tolist())
        self._took("bound", clock.now() - begin)
        # roundings per node (grid_bound.py), more for messages by two sweeps over all labels, and the sum over a strip
        operations = (128.0 if grid.eight else 64.0) + 4.0 * grid.labels * (grid.window < 0) + 24.0 + grid.steps
        return low, UNIT * operations * size

    def _fits(self, graph: Graph, frame: Strips) -> bool:
        """Whether the messages are of use in a frame of that graph."""
        mine, other = self.grid, frame
        same = (mine.height, mine.width, mine.gamma.dtype) == (other.height, other.width, other.gamma.dtype)
        return same and mine.eight == other.eight and same_structure(self.graph, graph)

    def _twin(self) -> GeneralMessages:
        """The same model with one slot per edge, from which messages of both ends can be made."""
        return GeneralMessages(self.graph, np.arange(self.graph.n, dtype=np.int64), tables=False)

    def _places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The direction and the first pixel of every edge."""
        ends = self.graph.edges.astype(np.int64)
        steps = [down * self.grid.width + right for down, right in DIRECTIONS[: self.grid.directions]]
        ascending = np.argsort(steps)
        found: npt.NDArray[np.int64] = ascending[np.searchsorted(np.sort(steps), ends[:, 1] - ends[:, 0])]
        return found, ends[:, 0]

    def load(self, content: FloatArray) -> None:
        grid = self.grid
        images = np.zeros((grid.directions, grid.height * grid.width, grid.labels))
        with closing(self._twin()) as twin:
            twin.load(content)
            images[self._places()] = twin.sweeper.messages.reshape(-1, grid.labels)
        set_messages(grid, images.reshape(-1, grid.height, grid.width, grid.labels))

    def export(self) -> FloatArray:
        images = images_of_messages(self.grid).reshape(self.grid.directions, -1, self.grid.labels)
        with closing(self._twin()) as twin:
            twin.sweeper.messages.reshape(-1, self.grid.labels)[:] = images[self._places()]
            return twin.export()

    def close(self) -> None:
        del self.grid


def same_structure(a: Graph, b: Graph) -> bool:
    """The same variables and factors, whatever they cost."""
    if a is b:  # which may have no list, and needs none for this
        return True
    names = ("cards", "kind", "scope_start", "scope")
    pairs = [(getattr(a.arrays, name), getattr(b.arrays, name)) for name in names]
    return all(one is other or np.array_equal(one, other) for one, other in pairs)


def grid_stencil(graph: Graph) -> Stencil | None:
    """The stencil of a model that the grid engine takes, or None."""
    return graph.kept_structure("stencil of trws", lambda: _grid_stencil(graph))


def _grid_stencil(graph: Graph) -> Stencil | None:
    if graph.n < LANES * 14:  # strips of a smaller one would be mostly padding, see below
        return None
    stencil = find_stencil(graph, max_displacements=4, max_radius=1, images=False)
    if stencil is None or not {tuple(d) for d in stencil.displacements.tolist()} <= set(DIRECTIONS):
        return None
    height, width = stencil.height, stencil.width
    least = stencil.weights.min() if stencil.equal is None else stencil.equal
    if width == 1 or least < 0.0 or stencil.profile.max() <= 0.0:
        return None
    if stencil.kind == Kind.QUADRATIC and (stencil.profile < stencil.profile.max()).sum() > WIDEST + 1:
        return None
    edges = sum((height - down) * (width - abs(right)) for down, right in stencil.displacements.tolist())
    lag, most = (1, 1.5) if {tuple(d) for d in stencil.displacements.tolist()} <= set(DIRECTIONS[:2]) else (2, 2.5)
    padded = -(-height // LANES) * LANES * (width + (LANES - 1) * lag)
    return stencil if graph.m >= 0.9 * edges and padded <= most * height * width else None
