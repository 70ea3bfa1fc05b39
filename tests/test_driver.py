"""solve(): arguments, limits, interruption, statuses."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model


def small():
    return grid_model(np.random.default_rng(0), 6, 6, 3)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"method": "nosuch"}, "unknown method 'nosuch'"),
        ({"method": "bcd", "rhoo": 1}, "no option 'rhoo'"),
        ({"method": "bcd", "restarts": "many"}, "takes int"),
        ({"method": "bcd", "restarts": -1}, "at least 0"),
        ({"method": "bcd", "order": "sideways"}, "order must be"),
        ({"method": "bcd", "time_limit": -1.0}, "time_limit"),
        ({"method": "bcd", "max_iterations": -1}, "max_iterations"),
        ({"method": "bcd", "threads": 0}, "threads"),
    ],
)
def test_bad_options(kwargs, words):
    with pytest.raises(tm.OptionError, match=words):
        tm.solve(small(), **kwargs)


@pytest.mark.parametrize(
    ("init", "words"),
    [
        (np.zeros(5, dtype=np.int64), "expected 36 integers"),
        (np.full(36, 3), "labels 0..2"),
        (np.full((36, 3), 0.5), "sum to 1"),
        (np.full((36, 2), 0.5), "needs 3"),
        ([[0.2, 0.8]], "36 labels or vectors"),
        ([10**30] * 36, "expected 36 integers"),
        ([[10**400, 0, 0]] * 36, "sum to 1"),
        (np.array(None, dtype=object), "one number"),
        (np.ma.array(np.zeros(36, dtype=np.int64), mask=np.eye(6).reshape(-1)), "masked"),
    ],
)
def test_bad_starts(init, words):
    with pytest.raises(tm.ModelError, match=words):
        tm.solve(small(), "bcd", init=init)


def test_not_a_model():
    with pytest.raises(tm.ModelError, match=r"expected a tightmap\.Model"):
        tm.solve([[1, 2]], "bcd")


def test_a_model_that_changes_meanwhile_is_no_model():
    """Energy and bound would be of two different models."""
    model = grid_model(np.random.default_rng(0), 6, 6, 3, "potts")

    def meddle(info):
        model.add_unaries(np.ones((36, 3)))

    with pytest.raises(tm.ModelError, match="changed"):
        tm.solve(model, "admm", callback=meddle, max_iterations=5)


@pytest.mark.parametrize("answer", [True, np.True_])
def test_a_callback_stops_with_either_kind_of_true(answer):
    result = tm.solve(small(), "bcd", callback=lambda info: answer, restarts=50)
    assert result.iterations < 50
    assert result.status in (tm.Status.INTERRUPTED, tm.Status.CONVERGED)


def test_threads_that_ask_for_the_canonical_form_at_once_get_one(monkeypatch):
    """Two of them would look like a model that was changed while it was being solved."""
    from tightmap.canonical import build

    both = threading.Barrier(2)
    make = build.build_graph

    def slowly(model):
        graph = make(model)
        both.wait(30)  # both threads have made one before either can keep it
        return graph

    monkeypatch.setattr(build, "build_graph", slowly)
    model, results = small(), []
    threads = [threading.Thread(target=lambda: results.append(tm.solve(model, "bcd", threads=1))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2 and results[0] == results[1]


def test_a_form_made_before_a_change_is_not_kept(monkeypatch):
    from tightmap.canonical import build

    make, model = build.build_graph, tm.Model([2])

    def changed_meanwhile(model):
        graph = make(model)
        model.add_unaries([[5.0, 7.0]])
        return graph

    monkeypatch.setattr(build, "build_graph", changed_meanwhile)
    model.graph()
    monkeypatch.setattr(build, "build_graph", make)
    assert tm.solve(model, "bcd").lower_bound == 5.0


def test_the_start_of_a_run_that_is_cut_off_is_a_copy():
    from tightmap.driver import _start_without_kernels

    model, start = tm.Model([2, 3]), np.array([1, 2])
    labels = _start_without_kernels(model, start)
    labels[:] = 0
    assert start.tolist() == [1, 2]
    assert _start_without_kernels(model, [[0.5, 0.5], [1.0, 0.0, 0.0]]).tolist() == [0, 0]


def test_infeasible_is_proven():
    model = tm.Model([2, 2])
    model.add_factors([[0, 1]], np.full((2, 2), np.inf))
    result = tm.solve(model, "bcd")
    assert result.status is tm.Status.INFEASIBLE and not result.feasible
    assert result.energy == np.inf and result.lower_bound == np.inf
    unary = tm.Model([2])
    unary.add_unaries([[np.inf, np.inf]])
    assert tm.solve(unary, "bcd").status is tm.Status.INFEASIBLE


def test_unaries_alone_are_solved_exactly():
    model = tm.Model([3, 2])
    model.add_unaries([[3.0, 1.0, 2.0], [0.5, 0.25]])
    result = tm.solve(model, "bcd")
    assert result.status is tm.Status.OPTIMAL and result.energy == 1.25 and result.gap == 0.0
    assert result.labels.tolist() == [1, 1]


def test_time_limit_is_honoured():
    model = grid_model(np.random.default_rng(1), 150, 150, 8)
    tm.solve(model, "bcd", max_iterations=1)  # compile
    begin = time.perf_counter()
    result = tm.solve(model, "bcd", restarts=100000, time_limit=0.3)
    assert result.status is tm.Status.TIME_LIMIT
    assert np.isfinite(result.energy) and result.elapsed >= 0.3
    assert time.perf_counter() - begin < 30.0  # far from tight: the machine may be busy


def test_ctrl_c_returns_the_best_so_far():
    model = grid_model(np.random.default_rng(2), 60, 60, 4)
    tm.solve(model, "bcd", max_iterations=1)
    outside = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has it ignored
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
    result = tm.solve(model, "bcd", restarts=10_000_000, time_limit=60.0)
    assert result.status is tm.Status.INTERRUPTED
    assert result.energy == model.energy(result.labels)
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, outside)


def test_solving_outside_the_main_thread():
    out = []
    worker = threading.Thread(target=lambda: out.append(tm.solve(small(), "bcd")))
    worker.start()
    worker.join()
    assert np.isfinite(out[0].energy)


def test_summary_speaks():
    result = tm.solve(small(), "bcd")
    text = result.summary()
    assert "bcd" in text and "energy" in text and tm.Status.CONVERGED.value in text


def test_seeds_matter_and_repeat():
    model = grid_model(np.random.default_rng(3), 20, 20, 5, "dense")
    a, b, c = (tm.solve(model, "sa", seed=s, cycles=1, sweeps=5) for s in (1, 1, 2))
    assert (a.labels == b.labels).all()
    assert (a.labels != c.labels).any()


def test_seeds_of_any_number_of_bits():
    from tightmap.runtime.random_numbers import OFFSET, start_state

    ends_at_zero = -OFFSET * pow(2654435761, -1, 2**64) % 2**64
    states = [int(start_state(seed)[0]) for seed in (0, 1, 2**63, 2**64 - 1, 10**40, ends_at_zero)]
    assert all(states) and len(set(states)) >= 5  # a state of zero would stay zero
    assert tm.solve(small(), "tabu", seed=10**40, max_iterations=2).feasible
