"""The linear relaxation of a partition problem by cycle inequalities, and its certified bound.

    minimise   c y   over 0 <= y <= 1,   y_e <= sum of y_f over the other pairs f of a cycle,  for all cycles

with a variable y_e for every pair and one z for every triple, z = [all different]:

    z >= y_uv + y_uk + y_vk - 2   where that costs,      z <= y_uv, y_uk, y_vk   where it is a gain

Rows of violated cycles and stars are added as they are found (A y <= b; violated.py).  The
relaxation is solved by the proximal method, whose steps

    minimise   c y + |y - p|^2 / (2 t)   subject to A y <= b,  0 <= y <= 1;       p <- y

are made by coordinate ascent in the multipliers m >= 0 of the rows (Hildreth's method):

    m_r <- max(0, m_r + (a_r y - b_r) / (t |a_r|^2)),     y = p - t (c + A^T m + n),    n: multipliers of 0 <= y <= 1

Any m >= 0 gives a bound, however far from converged:   -b m + sum_e min over low_e <= y <= high_e of (c + A^T m)_e y.

References: Chopra and Rao 1993; Groetschel and Wakabayashi 1989 (inequalities); Hildreth 1957; Rockafellar 1976.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from tightmap.energy.certificate import UNIT
from tightmap.runtime.compiled import lean
from tightmap.solvers.multicut.problem import FloatArray, IntArray, SignedGraph
from tightmap.solvers.multicut.violated import LONGEST, STAR, find_paths, find_stars, find_triangles

FEW = 0.5  # new triangles per variable: where there are no more than that, stars are looked for as well
DENSE = 0.3  # part of all pairs, from which on triangles are looked through one by one
KEEP = 8  # rounds after which a row without a multiplier goes
MOST = 200_000  # rows that one round adds at most


@lean
def ascend(start, column, coefficient, right, multiplier, y, box, low, high, step, sweeps):
    """Sweeps over all rows and bounds; ``box`` are the multipliers of low <= y <= high."""
    rows = len(start) - 1
    for _ in range(sweeps):
        for r in range(rows):
            first, last = start[r], start[r + 1]
            excess = -right[r]
            for k in range(first, last):
                excess += coefficient[k] * y[column[k]]
            change = max(excess / (step * (last - first)), -multiplier[r])
            if change != 0.0:
                multiplier[r] += change
                change *= step
                for k in range(first, last):
                    y[column[k]] -= change * coefficient[k]
        for e in range(len(y)):
            free = y[e] + step * box[e]
            inside = min(max(free, low[e]), high[e])
            box[e] = (free - inside) / step
            y[e] = inside


@lean
def move_centre(start, column, coefficient, multiplier, y, box, cost, step):
    """The proximal step: y = p - t (c + A^T m + n) with p the y so far."""
    for e in range(len(y)):
        y[e] -= step * (cost[e] + box[e])
    for r in range(len(start) - 1):
        if multiplier[r] != 0.0:
            for k in range(start[r], start[r + 1]):
                y[column[k]] -= step * multiplier[r] * coefficient[k]


@lean
def reduced_costs(start, column, coefficient, multiplier, cost, out):
    """c + A^T m; returns the sum of the sizes of all that was added."""
    size = 0.0
    for e in range(len(cost)):
        out[e] = cost[e]
        size += abs(cost[e])
    for r in range(len(start) - 1):
        if multiplier[r] != 0.0:
            for k in range(start[r], start[r + 1]):
                out[column[k]] += multiplier[r] * coefficient[k]
            size += multiplier[r] * (start[r + 1] - start[r])
    return size


class Relaxation:
    """Rows, multipliers and the present point; bounds of single variables may be changed for branching."""

    def __init__(self, problem: SignedGraph) -> None:
        self.problem = problem
        m, t = len(problem.pairs), len(problem.triples)
        self.cost: FloatArray = np.concatenate((problem.weight, problem.extra))
        self.low, self.high = np.zeros(m + t), np.ones(m + t)
        self.typical = float(np.abs(self.cost).mean()) or 1.0
        self.step = 0.3 / self.typical
        self.y: FloatArray = np.where(self.cost < 0.0, 1.0, 0.0)
        self.box = np.zeros(m + t)
        self.start: IntArray = np.zeros(1, np.int64)
        self.column: IntArray = np.zeros(0, np.int64)
        self.coefficient = np.zeros(0)
        self.right, self.multiplier = np.zeros(0), np.zeros(0)
        self.idle: IntArray = np.zeros(0, np.int64)
        self.reduced = self.cost.copy()
        self._known: set[bytes] = set()
        self._fixed_rows = 0
        self._triples()
        n = problem.n
        self._number: IntArray | None = None
        if m > DENSE * n * (n - 1) / 2:
            self._number = np.full((n, n), -1)
            self._number[problem.pairs[:, 0], problem.pairs[:, 1]] = np.arange(m)
            self._number[problem.pairs[:, 1], problem.pairs[:, 0]] = np.arange(m)
        a, b = problem.pairs[:, 0], problem.pairs[:, 1]
        who = np.concatenate((a, b))
        order = np.argsort(who, kind="stable")
        self._adj_start = np.concatenate(([0], np.cumsum(np.bincount(who, minlength=n))))
        self._adj_to = np.concatenate((b, a))[order]
        self._adj_pair = np.concatenate((np.arange(m), np.arange(m)))[order]
        self._begin = 0  # the pair to go on with
        self._rest = np.zeros((m, 2), np.int64)  # calls for which a pair is passed over
        self._all = True  # whether nobody was in the round that is going on

    def _triples(self) -> None:
        """Rows that triples always have: their triangles, and what their extra cost means."""
        problem = self.problem
        m = len(problem.pairs)
        rows, signs, right = [], [], []
        for k, (sides, extra) in enumerate(zip(problem.sides.tolist(), problem.extra.tolist(), strict=True)):
            for p in range(3):
                rows.append([sides[p], *(s for q, s in enumerate(sides) if q != p)])
                signs.append([1.0, -1.0, -1.0])
                right.append(0.0)
            if extra > 0.0:
                rows.append([*sides, m + k])
                signs.append([1.0, 1.0, 1.0, -1.0])
                right.append(2.0)
            else:
                for s in sides:
                    rows.append([m + k, s])
                    signs.append([1.0, -1.0])
                    right.append(0.0)
        if rows:
            flat = np.concatenate([np.asarray(r) for r in rows])
            self._append(flat, np.array([len(r) for r in rows]), np.concatenate(signs), np.array(right))
        self._fixed_rows = len(rows)

    def _append(self, column: IntArray, length: IntArray, coefficient: FloatArray, right: FloatArray) -> None:
        self.column = np.concatenate((self.column, column))
        self.coefficient = np.concatenate((self.coefficient, coefficient))
        self.start = np.concatenate((self.start, self.start[-1] + np.cumsum(length)))
        self.right = np.concatenate((self.right, right))
        self.multiplier = np.concatenate((self.multiplier, np.zeros(len(length))))
        self.idle = np.concatenate((self.idle, np.zeros(len(length), np.int64)))

    def separate(self, left: float) -> int:
        """Add rows of violated cycles; how many."""
        n = self.problem.n
        if self._number is not None:
            out, amount = np.zeros((len(self.problem.pairs), 3), np.int64), np.zeros(len(self.problem.pairs))
            rows = find_triangles(n, self._number, self.y, out, amount)
            found = self._add_cycles(out[:rows].reshape(-1), np.full(rows, 3))
            return found if found > FEW * n else found + self._stars()
        room = min(len(self.problem.pairs) + 1, MOST)
        starts, flat = np.zeros(room + 1, np.int64), np.zeros(room * 12 + LONGEST, np.int64)
        if self._begin >= len(self.problem.pairs):
            self._begin = 0
        if self._begin == 0:
            self._all = not (self._rest[:, 0] > 0).any()
        rows, self._begin = find_paths(
            self._adj_start, self._adj_to, self._adj_pair, self.problem.pairs, self.y, np.zeros(n),
            np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64),
            self._rest, starts, flat, self._begin, left,
        )  # fmt: skip
        if rows == 0 and self._begin >= len(self.problem.pairs) and not self._all:
            self._rest[:, 0] = 0  # nothing is left among those that were looked at: next time all of them
        return self._add_cycles(flat[: starts[rows]], np.diff(starts[: rows + 1]))

    def _stars(self) -> int:
        """Add rows of violated stars, the most violated ones."""
        assert self._number is not None
        n = self.problem.n
        out, size, amount = np.zeros((n * n, STAR + 1), np.int64), np.zeros(n * n, np.int64), np.zeros(n * n)
        rows = find_stars(n, self._number, self.y, out, size, amount)
        found, seen = 0, set()
        column, coefficient, length, right = [], [], [], []
        for k in np.argsort(-amount[:rows]):
            middle, others = int(out[k, 0]), np.sort(out[k, 1 : size[k]])
            if (middle, others.tobytes()) in seen or found >= 2 * n:
                continue
            seen.add((middle, others.tobytes()))
            a, b = np.triu_indices(len(others), 1)
            column.append(np.concatenate((self._number[middle, others], self._number[others[a], others[b]])))
            coefficient.append(np.concatenate((np.full(len(others), -1.0), np.ones(len(a)))))
            length.append(len(others) + len(a))
            right.append(1.0 - len(others) + len(a))
            found += 1
        if not found:
            return 0
        return self._add(np.concatenate(column), np.array(length), np.concatenate(coefficient), np.array(right))

    @property
    def separated(self) -> bool:
        """Whether the last separation went through all pairs."""
        return self._number is not None or (self._all and self._begin >= len(self.problem.pairs))

    def _add_cycles(self, flat: IntArray, length: IntArray) -> int:
        coefficient = np.full(len(flat), -1.0)
        coefficient[(np.cumsum(length) - length).astype(np.int64)] = 1.0
        return self._add(flat, length, coefficient, np.zeros(len(length)))

    def _add(self, flat: IntArray, length: IntArray, coefficient: FloatArray, right: FloatArray) -> int:
        """Rows that are not there yet; how many."""
        ends = np.concatenate(([0], np.cumsum(length)))
        signed = 2 * flat + (coefficient > 0.0)
        keep = np.zeros(len(length), bool)
        for k in range(len(length)):
            key = np.sort(signed[ends[k] : ends[k + 1]]).tobytes()
            if key not in self._known:
                self._known.add(key)
                keep[k] = True
        entry = np.repeat(keep, length)
        self._append(flat[entry], length[keep], coefficient[entry], right[keep])
        return int(keep.sum())

    def drop(self) -> None:
        """Rows that have had no multiplier for some rounds go."""
        self.idle = np.where(self.multiplier > 0.0, 0, self.idle + 1)
        stay = self.idle < KEEP
        stay[: self._fixed_rows] = True
        if len(stay) == 0 or stay.mean() > 0.8:
            return
        length = np.diff(self.start)
        for k in np.flatnonzero(~stay):
            row = slice(self.start[k], self.start[k + 1])
            self._known.discard(np.sort(2 * self.column[row] + (self.coefficient[row] > 0.0)).tobytes())
        entry = np.repeat(stay, length)
        self.column, self.coefficient = self.column[entry], self.coefficient[entry]
        self.start = np.concatenate(([0], np.cumsum(length[stay])))
        self.right, self.multiplier, self.idle = self.right[stay], self.multiplier[stay], self.idle[stay]

    def solve(self, sweeps: int, inner: int) -> None:
        """So many sweeps, with a proximal step after every ``inner`` of them."""
        rows = (self.start, self.column, self.coefficient)
        for _ in range(max(1, sweeps // inner)):
            move_centre(*rows, self.multiplier, self.y, self.box, self.cost, self.step)
            ascend(
                *rows, self.right, self.multiplier, self.y, self.box, self.low, self.high, self.step, inner,
            )  # fmt: skip

    def bound(self) -> tuple[float, float]:
        """The bound of the present multipliers, without the constant, and how far rounding may have moved it."""
        size = reduced_costs(self.start, self.column, self.coefficient, self.multiplier, self.cost, self.reduced)
        r = self.reduced
        raw = float(np.minimum(r * self.low, r * self.high).sum() - (self.right * self.multiplier).sum())
        size += float((self.right * self.multiplier).sum())
        return raw, UNIT * (len(self.start) + len(self.cost) + 16) * size
