"""Kernels compiled by helpers while a run goes on: who is ready, who waits, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tightmap as tm
from tightmap import compile_ahead
from tightmap.runtime import background
from tightmap.runtime.background import Helper
from tightmap.solvers.auto.plan import plan


@pytest.fixture(autouse=True)
def nobody():
    yield
    background.allow(None)
    background.end_all()


def helper(methods, program):
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return Helper(process, methods)


def eventually(condition):
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_methods_are_ready_one_after_the_other():
    made = helper(["a", "b", "c"], "print('a'); print('b', flush=True); input()")
    background.add(made)
    assert eventually(lambda: background.being_compiled() == ["c"])
    made.process.stdin.write(b"\n")
    made.process.stdin.flush()  # it ends without having finished: nobody waits for it
    assert eventually(lambda: background.being_compiled() == [])
    assert made.process.poll() is not None


def test_those_at_work_come_first_and_the_end_is_the_end():
    background.add(helper(["a", "b"], "input()"))
    other = helper(["c"], "input()")
    background.add(other)
    assert background.being_compiled() == ["a", "c", "b"]
    background.end_all()
    assert background.being_compiled() == [] and other.process.poll() is not None


def test_helpers_are_started_where_they_are_allowed_and_needed(monkeypatch):
    calls = []
    jobs = [("trws", {}), ("lns", {}), ("admm", {})]
    monkeypatch.setattr(background._compilations, "seen", True)
    background.wanted(jobs, True)  # nobody has allowed it
    background.allow(lambda jobs, pairs: calls.append((list(jobs), pairs)))
    monkeypatch.setattr(background._compilations, "seen", False)
    background.wanted(jobs, True)  # everything has been on disk so far
    assert calls == []
    monkeypatch.setattr(background._compilations, "seen", True)
    background.wanted(jobs[:1], True)  # nothing but what this process is about to do
    assert calls == []
    background.wanted(jobs, True)
    assert calls == [(jobs[1:], True)]


def frustrated(n=40):
    rng = np.random.default_rng(0)
    model = tm.Model([3] * n)
    pairs = np.array([[i, j] for i in range(n) for j in range(i)])
    model.add_factors(pairs, rng.random((len(pairs), 3, 3)))
    return model


def test_auto_begins_with_what_is_ready(monkeypatch):
    model = frustrated()
    names = [phase.method for phase in plan(model.graph())]
    queue = [name for name in names if name != "lns"]
    monkeypatch.setattr(background, "being_compiled", lambda: queue)
    result = tm.solve(model, time_limit=0.4)
    assert "lns (" in result.note
    assert not any(f"{name} (" in result.note for name in queue)
    monkeypatch.setattr(background, "being_compiled", lambda: names)  # nobody is ready: the last one is compiled here
    result = tm.solve(model, time_limit=0.05)
    assert f"{names[-1]} (" in result.note


def test_without_a_time_limit_nothing_depends_on_it(monkeypatch):
    model = tm.Model.grid(7, 7, 3)
    model.add_unaries(np.random.default_rng(1).random((49, 3)))
    model.add_potts(model.edges(), 0.4)
    alone = tm.solve(model)
    monkeypatch.setattr(background, "being_compiled", lambda: ["exact", "expansion", "trws"])
    assert tm.solve(model) == alone


def test_the_first_answer_comes_before_the_first_method():
    seen = []
    tm.solve(frustrated(), callback=lambda info: seen.append(info.iteration) or True)
    assert seen == [0]


def test_an_unknown_method_is_an_error():
    with pytest.raises(tm.OptionError, match="unknown method"):
        tm.warm_up(["trws", "nothing"], background=True)
    with pytest.raises(tm.OptionError, match="unknown method 'nothing'"):
        tm.warm_up("nothing")  # one name, not seven letters


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


PARENT = """
import time
from tightmap import compile_ahead
from tightmap.runtime import background
compile_ahead.available = lambda: 2
compile_ahead.start_helpers([("bcd", {})] * 1000)
print(background._helpers[0].process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes as Linux shows them")
def test_a_helper_ends_with_its_starter():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
    assert eventually(lambda: not alive(pid))


def test_a_helper_compiles_and_says_so(monkeypatch):
    monkeypatch.setattr(compile_ahead, "available", lambda: 2)
    compile_ahead.start_helpers([("bcd", {"restarts": 0}), ("bcd", {})], pairs=True)
    assert background.being_compiled() == ["bcd", "bcd"]
    assert eventually(lambda: background.being_compiled() == [])


def test_one_core_has_no_helpers(monkeypatch):
    monkeypatch.setattr(compile_ahead, "available", lambda: 1)
    tm.warm_up(["bcd"], background=True)
    assert background._helpers == []


def test_small_models_are_of_both_kinds():
    assert len(list(compile_ahead.small_models(True))) + len(list(compile_ahead.small_models(False))) == len(
        list(compile_ahead.small_models())
    )


def test_warm_up_does_not_run_the_script_that_calls_it(tmp_path):
    """Neither a script without a guard, nor one that comes through a pipe and is no file at all."""
    script = (
        "import tightmap as tm\n"
        "from tightmap import compile_ahead\n"
        "print('once', flush=True)\n"
        "compile_ahead.available = lambda: 2\n"
        "tm.warm_up(['bcd', 'lns'])\n"
        "print(sorted(name for name, _ in compile_ahead.compile_kernels(['bcd', 'lns'])))\n"
    )
    path = tmp_path / "script.py"
    path.write_text(script)
    for arguments, text in (([str(path)], ""), (["-"], script)):
        done = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout.split("\n")) == (0, ["once", "['bcd', 'lns']", ""]), done.stderr


def test_a_compiling_process_that_dies_is_told_of():
    started = []
    ready = compile_ahead.compile_kernels(["bcd", "trws", "srmp", "lns"], 2, started)
    next(ready)
    for process in started:
        process.kill()
    with pytest.raises(tm.ModelError, match="ended before it had"):
        list(ready)
    assert eventually(lambda: all(process.poll() is not None for process in started))


def test_no_process_to_compile_in_is_told_of(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(tm.ModelError, match="could be started"):
        list(compile_ahead.compile_kernels(["bcd", "lns"], 2))
