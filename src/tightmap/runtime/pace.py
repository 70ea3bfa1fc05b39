"""How kernels keep to a time: they look at the clock themselves, between two factors or variables.

A step of a method is a call of a kernel, and how long that takes depends on the model: a sweep is a microsecond or a
minute.  So a kernel that may take long is told how many seconds it has (``left``), looks at the clock after every
``LOOK`` units of work, about a nanosecond each, and returns where it is.  Nothing that is computed depends on where a
kernel was interrupted and went on: only a time limit changes results.

Seconds are handed over, not a moment: a kernel may have to be compiled before it begins, and that does not count.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from tightmap.runtime.compiled import INTERPRETED, instruction, lean

if TYPE_CHECKING:
    from tightmap.moves.context import Context

LOOK = 500 if INTERPRETED else 100_000  # units of work, some nanoseconds each when compiled, between two looks
SLICE = 0.03  # seconds of work between two looks at limits, interruptions and the callback
EVER = float("inf")

_INT, _LONG = ir.IntType(32), ir.IntType(64)
_MONOTONIC = 6 if sys.platform == "darwin" else 1  # CLOCK_MONOTONIC


class TimeUp(Exception):
    """The time limit has passed in the middle of something that is of no use unless it is finished."""


@instruction(time.monotonic)
def _seconds(typingctx):
    """Seconds since some moment, on the system's steady clock."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if sys.platform == "win32":
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_LONG, []), "GetTickCount64")
            ticks = builder.uitofp(builder.call(function, []), ir.DoubleType())
            return builder.fmul(ticks, ir.Constant(ir.DoubleType(), 1e-3))
        kind = ir.FunctionType(_INT, [_INT, _LONG.as_pointer()])
        function = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        place = cgutils.alloca_once(builder, _LONG, size=2)
        builder.call(function, [_INT(_MONOTONIC), place])
        whole = builder.sitofp(builder.load(place), ir.DoubleType())
        part = builder.sitofp(builder.load(builder.gep(place, [_INT(1)])), ir.DoubleType())
        return builder.fadd(whole, builder.fmul(part, ir.Constant(ir.DoubleType(), 1e-9)))

    return types.float64(), codegen


@lean
def end_of(left):
    """The moment in so many seconds."""
    return _seconds() + left if left < EVER else EVER


@lean
def late(until):
    """Is it later than that moment?"""
    return until < EVER and _seconds() > until


def time_left(context: Context | None, within: float = EVER) -> float:
    """Seconds that a kernel may work: ``within`` so many, and not beyond the time limit."""
    return within if context is None else min(within, context.remaining())


def check_time(context: Context | None) -> None:
    """Raise TimeUp when the time limit has passed."""
    if context is not None and context.remaining() <= 0.0:
        raise TimeUp
