"""``@compiled`` and ``@lean``: the decorators of all kernels.

Numba's own decorator treats every function as one that Python may call: it writes two wrappers for it, optimises it,
and turns it into machine code, once more in each function that it is linked into.  A method here is a hundred small
functions, of which Python calls five.  ``@compiled`` does for a function only what its callers need (``linking``).
That takes a third off the seconds of a first run.

``@lean`` in addition counts no references: every call that passes a tuple of arrays increments and decrements a counter
for each of them, through a function pointer and atomically.  With the some thirty arrays of a model and its region
graph that is 0.3 microseconds per call, more than the work on a small table (measured: the message of a 4 x 4 pair
takes 0.17 instead of 1.7 microseconds).  In return neither a lean function nor anything it calls may allocate.

There are two ways out, both chosen by the environment before the first import:

``TIGHTMAP_PLAIN_NUMBA=1``  kernels are compiled by ``numba.njit``, nothing else.  A Numba whose internals are not those
                            that ``linking`` knows leads to the same, with a warning.
``NUMBA_DISABLE_JIT=1``     kernels are plain Python functions: for stepping through them and for line coverage.  Some
                            hundred times slower.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba

from tightmap.runtime import guard, plain
from tightmap.runtime.forks import wait_before_fork

INTERPRETED = bool(getattr(numba.config, "DISABLE_JIT", False))
_wanted_plain = os.environ.get("TIGHTMAP_PLAIN_NUMBA", "0") not in ("", "0")

with suppress(ImportError):  # before ``linking``, which adds a lock that may be taken while this one is held
    from numba.core.compiler_lock import global_compiler_lock

    wait_before_fork(global_compiler_lock)


def _choose() -> Callable[[Callable[..., Any], dict[str, Any]], Any]:
    """What makes a kernel of a function and its options."""
    if INTERPRETED:
        return plain.interpreted
    if _wanted_plain:
        return plain.with_njit
    try:
        from tightmap.runtime.linking import Compiled
        from tightmap.runtime.sharing import Shared  # noqa: F401  fails in the same way
    except (ImportError, AttributeError) as error:
        warnings.warn(
            f"the internals of Numba {numba.__version__} are not known to tightmap ({error}): kernels are compiled by "
            "numba.njit, which takes longer when they are first used; TIGHTMAP_PLAIN_NUMBA=1 says that this is wanted",
            RuntimeWarning,
            stacklevel=2,
        )
        return plain.with_njit
    return Compiled


_kernel = _choose()


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator with the options of ``numba.njit``; releases the interpreter's lock, lets division by zero be infinite.

    ::

        @compiled
        def total(x): ...

        @compiled(fastmath={"contract"})
        def product(x): ...

    The result has the Python function as ``py_func``, and as ``entry`` the form that Python calls.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return _kernel(function, _with_common(options))

    return decorate if function is None else decorate(function)


def _with_common(options: dict[str, Any]) -> dict[str, Any]:
    common = {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy"}
    return common | options | ({"parallel": False} if guard.CHECKED else {})


lean = compiled(_nrt=False)


def shared(
    apart: Callable[..., bool] = lambda *_: True, *, allocates: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of a large function that many kernels call: its machine code exists once (``sharing``).

    apart : of the Numba types of its arguments; where it says False the function is linked into kernels like any other
    allocates : as ``@compiled``, not as ``@lean``
    """
    if _kernel in (plain.interpreted, plain.with_njit):
        return compiled if allocates else lean
    from tightmap.runtime.sharing import Shared

    return lambda function: Shared(function, _with_common({} if allocates else {"_nrt": False}), apart)


inlined = compiled(_nrt=False, inline="always")  # for a few lines on the arrays of a model: a call passes all of them


def instruction(twin: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of an intrinsic, with the Python function that does the same where kernels are not compiled."""

    def decorate(function: Callable[..., Any]) -> Any:
        return twin if INTERPRETED else numba.extending.intrinsic(function)

    return decorate
