"""Solving in forked and spawned processes and in several threads at once, in any order, without a hang.

Every test runs a script in a process of its own with a time limit: what hangs fails.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec

import pytest

from tightmap.runtime.lazy import lazy

LIMIT = 300.0  # seconds, far more than is needed

COMMON = """
import multiprocessing, os, sys, threading, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import numpy as np
import tightmap as tm
from tightmap.runtime import clock
from tightmap.solvers.admm import engine as admm_engine
from tightmap.solvers.relaxed import descent
from tightmap.solvers.trws import engines as trws_engines, solver as trws

admm_engine.SERIAL = descent.SMALL = trws_engines.WORTH_THREADS = 0  # several threads on a small model too
trws.STEP = 0  # one iteration per step
METHODS = ("admm", "trbp", "trws", "pgd")

def model():
    rng = np.random.default_rng(0)
    model = tm.Model.grid(40, 40, 3)
    model.add_unaries(rng.random((1600, 3)))
    model.add_potts(model.edges(), 0.4 * rng.random(len(model.edges())))
    return model

def job(method):
    result = tm.solve(model(), method, max_iterations=8, threads=2)
    return method, result.energy, result.labels.tobytes()

def child(work):
    "Run in a forked child; its exit code."
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def no_threading_layer():
    from numba.np.ufunc import parallel as layers
    return layers._threading_layer is None
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def run_script(tmp_path, body, **environment):
    script = tmp_path / "script.py"
    script.write_text(COMMON + "\nif __name__ == '__main__':\n" + "\n".join("    " + line for line in body.split("\n")))
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2", **environment}  # also where there is one core only
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, script], stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)  # its children too
            process.kill()
            raise
    assert process.returncode == 0 and out == "done\n", errors


@needs_fork
def test_fork_in_any_order(tmp_path):
    """Children before the first run, after runs of every method, beside a pool, from a callback; one after another."""
    run_script(
        tmp_path,
        """
fork = multiprocessing.get_context("fork")
with fork.Pool(2) as pool:
    first = pool.map(job, METHODS)
assert [job(method) for method in METHODS] == first
assert any(thread.name == "tightmap" for thread in threading.enumerate())
with fork.Pool(2) as pool:
    assert not any(thread.name == "tightmap" for thread in threading.enumerate())  # ended before the fork
    assert pool.map(job, METHODS[::-1]) == first[::-1]
    assert [job(method) for method in METHODS] == first
    assert pool.map(job, METHODS) == first
with ProcessPoolExecutor(2, mp_context=fork) as pool:
    assert list(pool.map(job, METHODS)) == first
    assert job("trbp") == first[1]

def grandchild():
    return job("trws") == first[2] and child(lambda: job("trbp") == first[1]) == 0 and job("admm") == first[0]

assert child(grandchild) == 0

for method in ("trws", "trbp", "pgd"):  # both go on from the middle of a run
    mother, pids = os.getpid(), []

    def callback(info):
        if info.iteration >= 4 and not pids:
            pids.append(os.fork())

    result = tm.solve(model(), method, max_iterations=8, threads=2, callback=callback)
    same = (method, result.energy, result.labels.tobytes()) in first
    if os.getpid() != mother:
        os._exit(0 if same else 3)
    assert same and pids, method
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)
assert no_threading_layer()
print("done")
""",
    )


@needs_fork
def test_fork_while_another_thread_is_busy(tmp_path):
    """Solving, compiling a kernel or importing a method: the child does the same on its own."""
    run_script(
        tmp_path,
        """
from numba import njit
from tightmap.runtime.compiled import compiled

expected = [job(method) for method in METHODS]
over = threading.Event()

def solving(method):
    while not over.is_set():
        tm.solve(model(), method, max_iterations=60, threads=2)

busy = [threading.Thread(target=solving, args=(method,)) for method in ("trbp", "trws")]
for thread in busy:
    thread.start()
for k in range(8):
    assert child(lambda: job(METHODS[k % 4]) == expected[k % 4]) == 0
    time.sleep(0.01)
over.set()
for thread in busy:
    thread.join()

def make(decorator, number):
    def kernel(x):
        total = 0.0
        for i in range(x):
            total += np.sqrt(float(i)) ** number
        return total
    return decorator(kernel)

for decorator in (compiled, njit):
    started = threading.Event()

    def compiling():
        for number in range(4):
            started.set()
            make(decorator, number)(3)

    thread = threading.Thread(target=compiling)
    thread.start()
    started.wait()
    time.sleep(0.05)

    def on_its_own():
        begin = clock.now()
        time.sleep(0.05)
        return clock.now() - begin > 0.04 and make(compiled, 9)(3) > 0.0 and job("trbp") == expected[1]

    assert child(on_its_own) == 0
    while thread.is_alive():  # at any moment of a compilation
        assert child(lambda: True) == 0

assert "tightmap.solvers.search.tabu" not in sys.modules
thread = threading.Thread(target=tm.solve, args=(model(), "tabu"), kwargs={"max_iterations": 1})
thread.start()
time.sleep(0.002)
assert child(lambda: tm.solve(model(), "tabu", max_iterations=1).labels.shape == (1600,)) == 0
thread.join()
print("done")
""",
    )


@needs_fork
def test_fork_while_another_thread_computes_a_lazy_attribute():
    """The child computes its own: no lock of the other thread is left in it."""
    entered, leave = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, wait):
            self.wait = wait

        @lazy
        def value(self):
            entered.set()
            return not self.wait or leave.wait(60)

    thread = threading.Thread(target=lambda: Slow(wait=True).value)
    thread.start()
    entered.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # what hangs is killed
        os._exit(0 if Slow(wait=False).value else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    leave.set()
    thread.join()
    assert code == 0


def test_two_threads_at_once(tmp_path):
    """As many as there are methods, under the layer of Numba's that would not stand it: it is never started."""
    run_script(
        tmp_path,
        """
expected = [job(method) for method in METHODS]
with ThreadPoolExecutor(4) as pool:
    for _ in range(3):
        assert list(pool.map(job, METHODS)) == expected
        assert list(pool.map(job, ["trbp"] * 4)) == expected[1:2] * 4
assert no_threading_layer()
print("done")
""",
        NUMBA_THREADING_LAYER="workqueue",
    )


@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_other_ways_to_start_processes(tmp_path, start):
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {start} here")
    run_script(
        tmp_path,
        f"""
expected = [job(method) for method in ("trbp", "trws")]
with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context({start!r})) as pool:
    assert list(pool.map(job, ("trbp", "trws"))) == expected
    assert job("trws") == expected[1]
print("done")
""",
    )


@pytest.mark.skipif(find_spec("joblib") is None, reason="joblib is not installed")
@pytest.mark.parametrize("backend", ["loky", "multiprocessing", "threading"])
def test_joblib(tmp_path, backend):
    run_script(
        tmp_path,
        f"""
import joblib
expected = [job(method) for method in ("trbp", "trws")]
for _ in range(2):
    found = joblib.Parallel(n_jobs=2, backend={backend!r})(joblib.delayed(job)(m) for m in ("trbp", "trws"))
    assert found == expected
    assert job("trbp") == expected[0]
print("done")
""",
    )
