"""The clock stands still while kernels are compiled, and only then; without a time limit no result depends on it."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numba import njit
from numba.core import event

import tightmap as tm
from engines import ALL
from tightmap.moves.context import Context
from tightmap.registry import solver_class
from tightmap.runtime import clock
from tightmap.runtime.clock import COMPILE, PREPARE
from tightmap.solvers.admm import general as admm_general


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


def test_reading_kernels_may_take_a_moment_beyond_a_limit_and_no_more():
    reading = clock.Reading()
    context = Context(deadline=clock.now() + 1.0, reading=reading)
    with event.trigger_event(PREPARE):
        time.sleep(0.05)
    assert reading.too_long() == 0.0
    before = context.remaining()
    with event.trigger_event(PREPARE):
        time.sleep(clock.MOMENT)
    assert reading.too_long() >= 0.05
    assert context.remaining() <= before - 0.05
    with event.trigger_event(COMPILE):  # the first run on a machine takes what it takes
        time.sleep(0.01)
    assert reading.too_long() == 0.0
    assert clock.Reading().too_long() == 0.0


def test_the_first_run_of_admm_is_like_any_other(monkeypatch):
    """Its penalties grow faster where iterations are slow; compiling the first of them does not make it slow."""
    model = tm.Model([3] * 6)
    rng = np.random.default_rng(0)
    model.add_unaries(rng.random((6, 3)))
    pairs = [[i, j] for i in range(6) for j in range(i)]
    model.add_factors(pairs, rng.random((len(pairs), 3, 3)))
    real, waits = admm_general.general_sweeps, []

    def sweeps(*arguments):
        with event.trigger_event(PREPARE):  # as if these kernels were compiled in the first run
            time.sleep(waits.pop() if waits else 0.0)
        return real(*arguments)

    monkeypatch.setattr(admm_general, "general_sweeps", sweeps)
    paths = []
    for wait in (1.0, 0.0):
        waits.append(wait)
        result = tm.solve(model, "admm", time_limit=60.0, max_iterations=40, trace=True)
        paths.append([(row["iteration"], row["rho"], row["residual"]) for row in result.trace])
    assert paths[0] == paths[1] and len(paths[0]) > 1


@pytest.mark.parametrize("method", ALL)
def test_without_a_time_limit_no_result_depends_on_the_clock(method, monkeypatch):
    rng = np.random.default_rng(3)
    able = solver_class(method).capabilities
    binary = able.binary
    model = tm.Model.grid(5, 6, 2 if binary else 3)
    if not able.names_only:
        model.add_unaries(rng.random((30, model.max_labels)))
    model.add_potts(model.edges(), rng.uniform(-0.4 if binary or able.names_only else 0.1, 1.0, len(model.edges())))
    model.add_potts(np.array([[0, 8], [3, 27], [5, 20]]), np.full(3, 0.7))  # no regular grid

    def outcome():
        result = tm.solve(model, method, max_iterations=25, seed=1, trace=True)
        # some methods interrupt an iteration to look at the clock; admm, where a step is many iterations, must not
        steps = [row["iteration"] for row in result.trace] if method == "admm" else []
        return result.energy, result.lower_bound, result.iterations, result.status, result.labels.tolist(), steps

    steady = outcome()
    real, jumps, ahead = time.perf_counter, np.random.default_rng(0), [0.0]

    def jumpy():
        ahead[0] += 10.0 ** jumps.uniform(-6.0, 0.5)
        return real() + ahead[0]

    monkeypatch.setattr(time, "perf_counter", jumpy)
    assert outcome() == steady


def test_a_compilation_that_begins_between_two_looks_does_not_set_the_clock_back(monkeypatch):
    """Of another thread: it begins just when this one has read the time, and takes a while."""
    moments = iter([10.0, 12.0])
    compilation = clock._Compilation()
    monkeypatch.setattr(clock, "_compilation", compilation)

    def read():
        if not compilation.lock.locked() and compilation.depth == 0:  # whoever holds the lock is not interrupted
            compilation.depth, compilation.since = 1, 10.0
        return next(moments)

    monkeypatch.setattr(clock.time, "perf_counter", read)
    assert clock.now() == 10.0
