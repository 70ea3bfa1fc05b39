"""Blocks on several threads: all of them once, the same result on any number, failures handed on, nothing kept."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import tightmap as tm
from tightmap.energy.energies import BLOCK, gradient, lower_bound, message_offsets
from tightmap.runtime import memory, parallel
from tightmap.runtime.compiled import compiled


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_block_is_done_once(threads):
    for blocks in (0, 1, 2, 7, 50):
        done = np.zeros(blocks, dtype=np.int64)

        def kernel(first, last, done):
            done[first:last] += 1

        with parallel.using(threads):
            for _ in range(20):
                parallel.run(kernel, blocks, done)
        assert (done == 20).all()


def test_results_do_not_depend_on_the_number_of_threads():
    rng = np.random.default_rng(0)
    side = 2 * int(BLOCK**0.5)
    model = tm.Model.grid(side, side, 3)
    model.add_unaries(rng.random((side * side, 3)))
    model.add_potts(model.edges(), rng.random(len(model.edges())))
    graph = model.graph()
    assert graph.n > 3 * BLOCK
    messages, x = rng.normal(size=int(message_offsets(graph)[-1])), rng.random(3 * graph.n)
    found = []
    for threads in (1, 2, 3):
        with parallel.using(threads):
            found.append((lower_bound(graph, messages), gradient(graph, x).tobytes()))
    assert found[0] == found[1] == found[2]


def test_a_failure_reaches_the_caller_and_the_threads_stay_usable():
    for failing in range(8):

        def kernel(first, last, wrong):
            if first <= wrong < last:
                raise ValueError(f"block {wrong}")

        with parallel.using(4), pytest.raises(ValueError, match=f"block {failing}"):
            parallel.run(kernel, 8, failing)
    test_every_block_is_done_once(4)


def test_a_failing_thread_ends_the_work():
    """Pieces that nobody has begun are not begun any more, also when the one that fails is not the calling thread."""
    main, begun, failed = threading.current_thread(), [], threading.Event()

    def kernel(first, last):
        begun.append(first)
        if threading.current_thread() is not main:
            failed.set()
            raise ValueError("not here")
        assert failed.wait(30.0)

    with parallel.using(2), pytest.raises(ValueError, match="not here"):
        parallel.run(kernel, 1000)
    assert len(begun) <= 3


def test_the_number_of_threads_belongs_to_the_thread():
    seen = []
    with parallel.using(3):
        with parallel.using(2):
            assert parallel.threads() == 2
            other = threading.Thread(target=lambda: seen.append(parallel.threads()))
            other.start()
            other.join()
        assert parallel.threads() == 3
    assert seen == [parallel.available()] == [parallel.threads()]


def test_available(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    assert parallel.available() == 3
    monkeypatch.delenv("NUMBA_NUM_THREADS")
    assert parallel.available() >= 1


def test_a_system_without_more_threads(monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    parallel._end_idle()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    test_every_block_is_done_once(4)


def test_nothing_is_kept_in_memory():
    def kernel(first, last, x):
        x[first:last] = 1.0

    x = np.zeros(1000)
    alive = weakref.ref(x)
    with parallel.using(3):
        parallel.run(kernel, 1000, x)
        parallel.run(kernel, 1000, np.zeros(1000))  # whoever was late has come now
    del x
    gc.collect()
    assert alive() is None


def test_two_threads_at_once():
    """Each has its own work and its own failures."""

    def kernel(first, last, out, wrong):
        if wrong:
            raise ValueError("mine")
        out[first:last] += 1

    def client(number):
        out = np.zeros(40)
        with parallel.using(3):
            for k in range(50):
                try:
                    parallel.run(kernel, 40, out, number == 1 and k % 2 == 0)
                except ValueError:
                    failures[number] += 1
        totals[number] = out.sum()

    failures, totals = [0, 0, 0, 0], [0, 0, 0, 0]
    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert failures == [0, 25, 0, 0] and totals == [2000, 1000, 2000, 2000]


@compiled
def _allocate(first, last, size, out):
    room = np.empty(size)
    room[0] = 1.0
    out[first:last] = room[0]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [1 << 50, 1 << 61])
def test_out_of_memory_in_a_kernel_is_one_sentence(threads, size):
    out = np.zeros(8)
    with (
        parallel.using(threads),
        pytest.raises(tm.ModelError, match=r"^sa: not enough memory .* GiB") as caught,
        memory.guarded("sa"),
    ):
        parallel.run(_allocate, 8, size, out)
    assert "\n" not in str(caught.value) and out.sum() == 0.0
    parallel.run(_allocate, 8, 1, out)
    assert out.sum() == 8.0


def test_other_errors_are_not_called_a_lack_of_memory():
    for error in (ValueError("array of wrong shape"), SystemError("something else")):
        with pytest.raises(type(error), match=str(error)), memory.guarded("sa"):
            raise error
    cause = SystemError("returned a result with an exception set")
    cause.__cause__ = MemoryError()
    with pytest.raises(tm.ModelError, match="not enough memory"), memory.guarded("sa"):
        raise cause


def test_limits_of_the_process_count_as_memory():
    """A limit on the address space (ulimit -v) is what ``require`` goes by."""
    program = """
import resource
from tightmap.runtime import memory
free = memory.available_bytes()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
print(free > 64 << 20, 0 <= memory.available_bytes() <= 64 << 20)
"""
    resource = pytest.importorskip("resource")
    if not hasattr(resource, "RLIMIT_AS") or not sys.platform.startswith("linux"):
        pytest.skip("no limit on the address space here")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "True"], done.stderr
