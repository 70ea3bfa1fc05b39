"""The clock stands still while kernels are compiled, and only then."""

from __future__ import annotations

import time

from numba import njit

from tightmap import clock


def test_compilation_is_left_out():
    @njit
    def fresh(x):
        total = 0.0
        for i in range(x):
            total += i**0.5
        return total

    wall, own, compiled = time.perf_counter(), clock.now(), clock.compiling_seconds()
    fresh(3)
    wall, own, compiled = time.perf_counter() - wall, clock.now() - own, clock.compiling_seconds() - compiled
    assert compiled > 0.0
    assert abs(wall - own - compiled) < 0.05 * wall + 0.01


def test_other_work_counts():
    own = clock.now()
    time.sleep(0.05)
    assert clock.now() - own >= 0.05
