"""Waiting between threads inside nogil kernels: release a counter, wait until another thread's counter is there.

Sweeps that follow one another through a model hand over thousands of times per second; starting a parallel region
each time would cost more than the work.  A counter per strip of the model, written with release and read with
acquire order, costs one cache line.  Between looks the waiting thread gives its core away, so that more threads than
cores are slow but not stuck.  When one of the threads fails, the others learn of it where they wait, and leave.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tightmap.runtime import parallel
from tightmap.runtime.compiled import instruction, lean
from tightmap.runtime.parallel import Teams

LINE = 8  # counters in a cache line

_YIELD = "SwitchToThread" if sys.platform == "win32" else "sched_yield"


def _counter(context: Any, builder: Any, arytype: Any, ary: Any, index: Any) -> Any:
    return builder.gep(cgutils.create_struct_proxy(arytype)(context, builder, ary).data, [index])


def _is_counters(ary: Any) -> bool:
    return isinstance(ary, types.Array) and ary.dtype == types.int64 and ary.ndim == 1 and ary.layout == "C"


@instruction(lambda counters, index, value: counters.__setitem__(index, value))
def publish(typingctx, counters, index, value):
    """counters[index] = value, after everything this thread wrote before."""
    if not _is_counters(counters):
        return None

    def codegen(context, builder, sig, args):
        builder.store_atomic(args[2], _counter(context, builder, sig.args[0], *args[:2]), "release", 8)
        return context.get_dummy_value()

    return types.none(counters, types.intp, types.int64), codegen


@instruction(lambda counters, index: counters[index])
def look(typingctx, counters, index):
    """counters[index], before everything this thread reads afterwards."""
    if not _is_counters(counters):
        return None

    def codegen(context, builder, sig, args):
        return builder.load_atomic(_counter(context, builder, sig.args[0], *args), "acquire", 8)

    return types.int64(counters, types.intp), codegen


@instruction(lambda: time.sleep(0))
def give_way(typingctx):
    """Let another thread run on this core."""

    def codegen(context, builder, sig, args):
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), []), _YIELD)
        builder.call(function, [])
        return context.get_dummy_value()

    return types.none(), codegen


@lean
def wait_for(counters, index, value):
    """True once counters[index] >= value; False when another thread has failed, and the caller has to return."""
    looks = 0
    while look(counters, index) < value:
        looks += 1
        if looks > 200:
            if look(counters, len(counters) - 1) != 0:
                return False
            give_way()
    return True


@lean
def meet(counters, thread, threads, number):
    """Wait for all threads to come to meeting ``number`` (1, 2, ...); False as in wait_for."""
    publish(counters, LINE * thread, number)
    here = True
    for other in range(threads):
        here = here and wait_for(counters, LINE * other, number)
    return here


def together(team: int, kernel: Callable[..., Any], counters: int, *arguments: Any) -> None:
    """kernel(*arguments, thread, threads, progress) on ``team`` threads, fewer where the system gives no more.

    progress has one cache line per counter, and one more that says whether a thread has failed.
    """
    progress = np.zeros(LINE * (counters + 1), dtype=np.int64)
    if team <= 1:
        kernel(*arguments, 0, 1, progress)
        return

    def pieces(threads: int) -> list[parallel.Piece]:
        # the calling thread is the first: it is awake, and others follow it
        return [partial(kernel, *arguments, thread, threads, progress) for thread in reversed(range(threads))]

    parallel.share(team, pieces, partial(progress.__setitem__, -1, 1))


class Crew:
    """Threads that run one nogil kernel together, each with its own number."""

    def __init__(self, threads: int) -> None:
        self.threads = max(1, threads)
        self._teams = Teams(self.threads)

    def run(self, kernel: Callable[..., Any], counters: int, *arguments: Any) -> None:
        """kernel(*arguments, thread, threads, progress) on every thread; progress has one cache line per counter."""
        team = self._teams.choose(kernel)
        begin = time.perf_counter()
        together(team, kernel, counters, *arguments)
        self._teams.report(kernel, team, time.perf_counter() - begin)
