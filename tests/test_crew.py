"""Calls beside one another: whoever ends first is heard first, failures are handed on, a fork waits for all of them."""

import os
import threading
import time

import numpy as np
import pytest

import tightmap as tm
from tightmap.runtime import clock, parallel
from tightmap.runtime.crew import Crew
from tightmap.solvers.auto import run as auto_run


def test_whoever_ends_first_is_heard_first():
    crew, go = Crew(), threading.Event()
    assert crew.begin("slow", lambda: go.wait(10.0) and "late")
    assert crew.begin("quick", lambda: "early")
    assert crew.at_work == {"slow", "quick"}
    assert crew.wait() == ("quick", "early")
    assert crew.at_work == {"slow"}
    go.set()
    assert crew.rest() == [("slow", "late")]
    assert crew.rest() == []


def test_a_failure_is_raised_where_it_is_waited_for_and_the_others_are_not_lost():
    def fail():
        raise ValueError("no")

    crew = Crew()
    crew.begin(1, fail)
    crew.begin(2, lambda: "yes")
    with pytest.raises(ValueError, match="no"):
        crew.rest()
    assert not crew.at_work
    crew.begin(1, lambda: "again")
    assert crew.wait() == (1, "again")


def test_a_call_has_its_threads_and_the_limit_of_whoever_asks():
    crew = Crew(threads=3)
    end = time.perf_counter() + 100.0
    with clock.wall(end):
        crew.begin("a", lambda: (parallel.threads(), clock.wall_end()))
    assert crew.wait() == ("a", (3, end))
    crew.begin("a", clock.wall_end)
    assert crew.wait()[1] == np.inf


def test_a_system_without_more_threads(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    parallel._end_idle()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    crew = Crew()
    assert not crew.begin("a", lambda: 1)
    assert not crew.at_work
    model = frustrated()
    result = tm.solve(model, time_limit=0.4, threads=2)  # all of it in the calling thread
    assert model.energy(result.labels) == result.energy


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_waits_for_calls_and_its_child_finds_what_they_returned():
    crew = Crew()
    for _ in range(20):
        crew.begin("a", lambda: time.sleep(0.01) or 7)
        child = os.fork()
        if child == 0:
            os._exit(crew.wait()[1])  # would wait for ever if the fork had come in the middle
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert crew.wait() == ("a", 7)


def frustrated(n=60, labels=4, seed=0):
    rng = np.random.default_rng(seed)
    model = tm.Model([labels] * n)
    pairs = np.unique(np.sort(rng.integers(0, n, (6 * n, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    model.add_factors(pairs, rng.normal(size=(len(pairs), labels, labels)))
    return model


def test_two_methods_of_auto_are_at_work_at_once(monkeypatch):
    """The bodies of two turns overlap, and both threads are kernels' threads no more: each has one."""
    monkeypatch.setattr(auto_run, "MOMENT", 0.0)
    monkeypatch.setattr(auto_run, "GENEROUS", 0.0)
    seen, inside, lock = set(), [], threading.Lock()
    work = auto_run.Runner.work

    def watched(runner, long):
        with lock:
            inside.append(runner.phase.method)
            seen.add((len(inside), parallel.threads()))
            assert len(set(inside)) == len(inside)  # nobody has two turns at once
        try:
            return work(runner, long)
        finally:
            with lock:
                inside.remove(runner.phase.method)

    monkeypatch.setattr(auto_run.Runner, "work", watched)
    model = frustrated()
    monkeypatch.setattr(parallel, "available", lambda: 2)
    result = tm.solve(model, time_limit=1.0, threads=2)
    assert (2, 1) in seen and max(count for count, _ in seen) == 2
    assert model.energy(result.labels) == result.energy and result.lower_bound <= result.energy
    seen.clear()
    tm.solve(model, time_limit=0.5, threads=1)
    assert {count for count, _ in seen} == {1}


def failing(monkeypatch, method, error):
    """One method of auto raises this when it is started."""
    work = auto_run.Runner._work

    def fail(runner, bout, long):
        if runner.phase.method == method or method == "all":
            raise error
        work(runner, bout, long)

    monkeypatch.setattr(auto_run.Runner, "_work", fail)
    monkeypatch.setattr(parallel, "available", lambda: 2)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("error", [MemoryError("too much"), tm.ModelError("too much")])
def test_a_method_without_enough_memory_is_left_out(monkeypatch, threads, error):
    model = frustrated()
    failing(monkeypatch, "annealing", error)
    result = tm.solve(model, time_limit=0.5, threads=threads)
    assert "annealing was left out: too much" in result.note
    assert "lns (" in result.note
    assert model.energy(result.labels) == result.energy
    failing(monkeypatch, "all", error)
    with pytest.raises(tm.ModelError, match="too much"):
        tm.solve(model, time_limit=10.0, threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_any_other_failure_of_a_method_of_auto_ends_the_run(monkeypatch, threads):
    failing(monkeypatch, "lns", RuntimeError("a mistake"))
    with pytest.raises(RuntimeError, match="a mistake"):
        tm.solve(frustrated(), time_limit=10.0, threads=threads)
    monkeypatch.undo()
    result = tm.solve(frustrated(), time_limit=0.3)  # threads are usable after it
    assert np.isfinite(result.energy)
