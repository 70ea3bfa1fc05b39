"""Labellings from vectors: which side of a random plane each vector is on, then tabu search on single spins."""

from __future__ import annotations

import numpy as np

from tightmap.graph.graph import FloatArray
from tightmap.moves.context import Context, Labels
from tightmap.moves.spin_flips import flip_changes, flip_walk
from tightmap.moves.spins import Spins
from tightmap.runtime.pace import time_left
from tightmap.runtime.random_numbers import start_state

STEPS = 10  # flips of a search, for each spin
SEARCH_WORK = 10_000_000  # numbers that a search scans at most


class Rounding:
    """Draws planes; one random stream for a whole run."""

    def __init__(self, spins: Spins, seed: int) -> None:
        self.spins = spins
        self.rng = np.random.default_rng((seed, 2))
        self.random = start_state(seed)

    def labels(self, vectors: FloatArray, context: Context) -> Labels:
        spins = self.spins
        a, count = spins.matrix, spins.count
        side = np.where(vectors @ self.rng.normal(size=vectors.shape[1]) >= 0.0, 1.0, -1.0)
        if spins.extra:
            side *= side[-1]
        change, best = np.empty(count), side.copy()
        value = np.full(2, float(flip_changes(a.indptr, a.indices, a.data, side, change)))
        steps = min(STEPS * count, SEARCH_WORK // count)
        tenure = min(spins.n // 4, 10 + spins.n // 100)
        flip_walk(
            a.indptr, a.indices, a.data, spins.n, side, change, best, np.zeros(count, np.int64), 0, steps, 0,
            tenure, 10, self.random, value, 1e-9, time_left(context),
        )  # fmt: skip
        return spins.labels(best)
