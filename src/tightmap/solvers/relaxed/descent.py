"""Descent on relaxed vectors with a line search: the machine that projected gradient, Frank-Wolfe and CQP share.

    minimise F(x) = E(x) + sum_i ( x_i' D_i x_i - d_i' x_i )   over the product of simplices,   D_i = diag(d_i),

with d = 0 for the tight relaxation (paper §3 and §4.1) and the d of ``cqp.py`` for the convex one (supplement B.2).
``Descent`` owns a point with its gradient and its value, makes one iteration at a time, and says when it has converged:
the Frank-Wolfe gap sum_i <g_i, x_i> - min g_i is zero exactly at stationary points.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tightmap.factors.kernels import workspace
from tightmap.graph.graph import Arrays, Graph
from tightmap.moves.context import Context, Vector
from tightmap.runtime import parallel
from tightmap.runtime.pace import TimeUp, time_left
from tightmap.solvers.relaxed import descent_kernels as kernels
from tightmap.solvers.relaxed.line_search import Segment, from_samples, quadratic, sample_points

PLAIN, PAIRWISE, PROJECTED = kernels.PLAIN, kernels.PAIRWISE, kernels.PROJECTED
REFRESH = 100  # iterations after which gradient and value are computed afresh, so that rounding errors do not add up
STALL_SPAN, STALL_SIZE = 10, 1e-9  # converged when so many iterations lower the value by less than this part of it
SMALL = 1 << 16  # vectors x of fewer entries are handled by one thread, which is then quicker than two
BETA_RANGE = 1e3  # lengths of gradient steps stay between 1 / (this * scale) and this / scale


class Descent:
    """One point on its way down.

    rule        PLAIN or PAIRWISE Frank-Wolfe, or PROJECTED gradient
    line_search "exact", "armijo", "nonmonotone" (line_search.py) or "diminishing" (paper §3: alpha = 2 / (k + 2) for
                Frank-Wolfe; alpha = 1 and beta = 1 / sqrt(k + 1) for projected gradient)
    spectral    Barzilai-Borwein length of the gradient step instead of 1 / scale
    diagonal    d, or an empty vector
    """

    def __init__(
        self,
        graph: Graph,
        arrays: Arrays,
        rule: int,
        line_search: str,
        spectral: bool,
        tolerance: float,
        iterations: int,
        diagonal: Vector | None = None,
        context: Context | None = None,
    ) -> None:
        self.graph, self.arrays, self.rule = graph, arrays, rule
        self.line_search, self.spectral, self.tolerance, self.iterations = line_search, spectral, tolerance, iterations
        self.diagonal = np.zeros(0) if diagonal is None else diagonal
        self.context = context
        self.stale = False  # gradient and value are not those of x: time was up in the middle of an iteration
        self.order = graph.order
        self.scratch = workspace(arrays)
        size, n = len(arrays.unary), graph.n
        self.x, self.grad = np.zeros(size), np.zeros(size)
        self.r, self.h = np.zeros(size), np.zeros(size)
        self.moved, self.touched = np.zeros(n, np.uint8), np.zeros(n, np.uint8)
        self.sums = np.zeros(((n + kernels.BLOCK - 1) // kernels.BLOCK, 3))
        self.factor_blocks = (graph.m + kernels.BLOCK - 1) // kernels.BLOCK
        self.points = sample_points(self.order)
        self.count = 0
        self.small = size < SMALL

    def _run(self, kernel: Callable[..., bool | None], blocks: int, *arguments: Any) -> None:
        """A kernel on all blocks; raises TimeUp when one of them found that time is up."""
        late: list[bool] = []

        def some(first: int, last: int) -> None:
            if kernel(first, last, *arguments) is False:
                late.append(True)

        if self.small:
            some(0, blocks)
        else:
            parallel.run(some, blocks)
        if late:
            raise TimeUp

    # --------------------------------------------------------------------------------------------- one start

    def begin(self, x: Vector) -> None:
        """Start again from relaxed vectors; TimeUp when that does not fit into the time limit."""
        self.x[:] = x
        self.r[:] = 0.0
        self.count, self.alpha, self.gap, self.value = 0, 0.0, math.inf, math.inf
        self.values: deque[float] = deque(maxlen=STALL_SPAN + 1)
        self._catch_up()

    def _catch_up(self) -> None:
        """Bring gradient and value to x, and at the beginning what is measured by them."""
        self.refresh()
        if self.count == 0:
            self.scale = _typical_range(self.arrays, self.grad)
            self.beta = 1.0 / self.scale
            self.values.append(self.value)

    def refresh(self, left: float | None = None) -> None:
        """Gradient and value at x from scratch; every variable is looked at again.

        TimeUp when that does not fit into the time limit, or into so many seconds.
        """
        g = self.arrays
        left = time_left(self.context) if left is None else left
        self.stale = True
        if self.order <= 2:
            # E = constant + <unary, x> + <H x, x> / 2 and its gradient is unary + H x; d adds to both
            self.moved[:] = 1
            self.grad[:] = 0.0
            self._respond(self.x, self.grad, left)
            linear = g.unary - self.diagonal if len(self.diagonal) else g.unary
            self.value = self.graph.constant + _dot(linear, self.x) + 0.5 * float(self.sums[:, 0].sum())
            self.grad += linear
        else:
            # along the segment from 0 to x every factor goes from 0 to its energy (h is 0: only pairs use it)
            self.moved[:] = 1
            unit = np.ones(1)
            total = np.zeros((self.factor_blocks, 1))
            self._run(kernels.sample, len(total), g, self.h, self.x, self.moved, unit, self.scratch, total, left)
            self.value = self.graph.constant + _dot(g.unary, self.x) + float(total.sum())
            self.grad[:] = g.unary
            self._regradient(left)
        self.stale = False
        self.alpha = 0.0
        self.r[:] = 0.0
        self.moved[:], self.touched[:] = 0, 1

    def take_pending_step(self) -> Vector:
        """Take the pending step; the vectors after it."""
        self._run(
            kernels.take_step, len(self.sums), self.arrays,
            self.x, self.grad, self.r, self.h, self.moved, self.touched, self.alpha,
        )  # fmt: skip
        self.alpha = 0.0
        return self.x

    # ----------------------------------------------------------------------------------------- one iteration

    def iterate(self) -> bool:
        """One iteration; False when the point has converged (or cannot descend) and nothing was done.

        TimeUp when the time limit passes in the middle of it.
        """
        if self.count >= self.iterations or self._stalled():
            return False
        if self.stale:
            self._catch_up()
        elif self.count and self.count % REFRESH == 0:
            self.take_pending_step()
            self.refresh()
        if self.line_search == "diminishing" and self.rule == PROJECTED:
            self.beta = 1.0 / (self.scale * math.sqrt(self.count + 1.0))
        self._run(
            kernels.direct, len(self.sums), self.arrays,
            self.x, self.grad, self.r, self.h, self.moved, self.touched, self.alpha, self.rule, self.beta, self.sums,
        )  # fmt: skip
        self.alpha = 0.0
        self.gap, slope, square = (float(v) for v in self.sums.sum(axis=0))
        if self.gap <= self.tolerance * self.graph.magnitude(self.value) or square == 0.0:
            return False
        self.stale = True
        alpha, change = self._pairs(slope, square) if self.order <= 2 else self._any_order(slope, square)
        self.stale = False
        if alpha == 0.0:
            return False
        self.value += change
        self.values.append(self.value)
        self.count += 1
        return True

    def _respond(self, vectors: Vector, out: Vector, left: float) -> None:
        """out = H vectors for the moved variables' neighbours, sums = <vectors, out>."""
        self._run(
            kernels.respond, len(self.sums), self.arrays,
            vectors, out, self.moved, self.touched, self.diagonal, self.scratch, self.sums, left,
        )  # fmt: skip

    def _regradient(self, left: float) -> None:
        """The gradient at x around moved variables, sums = <r, its change>."""
        self._run(
            kernels.regradient, len(self.sums), self.arrays,
            self.x, self.grad, self.r, self.moved, self.touched, self.scratch, self.sums, left,
        )  # fmt: skip

    def _pairs(self, slope: float, square: float) -> tuple[float, float]:
        """Line search with h = H r; the step stays pending until the next direction is chosen."""
        self._respond(self.r, self.h, time_left(self.context))
        bend = float(self.sums[:, 0].sum())
        self.alpha, change = self._step(quadratic(slope, 0.5 * bend))
        self._spectral_step(square, bend)
        return self.alpha, change

    def _any_order(self, slope: float, square: float) -> tuple[float, float]:
        """Line search by sampling the energy; then the gradient is computed where it has changed."""
        g = self.arrays
        sums = np.zeros((self.factor_blocks, len(self.points)))
        left = time_left(self.context)
        self._run(kernels.sample, len(sums), g, self.x, self.r, self.moved, self.points, self.scratch, sums, left)
        values = sums.sum(axis=0) + self.points * _dot(g.unary, self.r)
        alpha, change = self._step(from_samples(self.order, slope, values))
        if alpha > 0.0:
            self.alpha = alpha
            self.take_pending_step()
            self._regradient(time_left(self.context))
            self._spectral_step(square, float(self.sums[:, 0].sum()) / alpha)
        return alpha, change

    def _step(self, along: Segment) -> tuple[float, float]:
        if self.line_search == "exact":
            return along.minimise()
        if self.line_search == "armijo":
            return along.armijo()
        if self.line_search == "nonmonotone":
            if self.rule != PROJECTED:  # a full Frank-Wolfe step is a jump to a vertex, not a spectral step
                return along.minimise()
            return along.nonmonotone(max(self.values) - self.value)
        alpha = 1.0 if self.rule == PROJECTED else 2.0 / (self.count + 2.0)
        return alpha, along.value(alpha)

    def _spectral_step(self, square: float, bend: float) -> None:
        """beta = <dx, dx> / <dx, dg>; where the energy bends down along the step, as far as is allowed."""
        if self.spectral:
            longest = BETA_RANGE / self.scale
            self.beta = min(longest, max(square / bend, 1.0 / (BETA_RANGE * self.scale))) if bend > 0.0 else longest

    def _stalled(self) -> bool:
        if self.line_search == "diminishing" or len(self.values) <= STALL_SPAN:
            return False
        return max(self.values) - min(self.values) < STALL_SIZE * self.graph.magnitude(self.values[-1])


def _typical_range(g: Arrays, grad: Vector) -> float:
    """Median over the variables of the spread of their derivatives: the unit in which gradient steps are measured."""
    spread = np.maximum.reduceat(grad, g.offset[:-1]) - np.minimum.reduceat(grad, g.offset[:-1])
    spread = spread[spread > 0.0]
    return float(np.median(spread)) if len(spread) else 1.0


def _dot(a: Vector, b: Vector) -> float:
    """<a, b> summed pairwise on this thread: BLAS would wake its own threads, and round by their number."""
    return float((a * b).sum())
