"""One function for an operation on factors of every kind, written from the table of kinds.

For every operation the table gives a chain of tests, most frequent kind first,

    def value(g, f, labels):
        kind = g.kind[f]
        if kind == 1:
            return potts_potts_value(g, f, labels)
        if kind == 0 and g.scope_start[f + 1] - g.scope_start[f] == 2:
            return dense_pair_value(g, f, labels)
        ...

which is written as text and compiled: Numba knows no table of functions that it could also inline.  The chain has two
parts.  The first asks for the kinds that models of pairs consist of.  The second asks for all others, and is empty for
such models (``PairArrays``): they are by far the most frequent and do not wait for the compilation of kinds that they
do not have.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import wraps
from inspect import signature
from types import FunctionType
from typing import Any

from numba.extending import overload

from tightmap.factors import kinds
from tightmap.graph.graph import PairArrays
from tightmap.runtime.compiled import inlined

_IS_PAIR = " and g.scope_start[f + 1] - g.scope_start[f] == 2"

Tests = list[tuple[str, Any]]  # a condition on ``kind``, and the kernel where it holds


def dispatch(operation: str, parameters: str, home: str, nothing: str = "None", default: Any = None) -> Any:
    """The function that calls the kernel ``operation`` of a factor's kind; ``home`` is the module that it is made for.

    nothing  what it returns, as text, where it cannot get to in models of pairs
    default  the kernel of the kinds that have none of their own
    """
    pairs: Tests = []
    others: Tests = []
    for row in kinds.KINDS:
        test = f"kind == {int(row.kind)}"
        every = None if row.kernels is None else getattr(row.kernels, operation) or default
        if row.pair_kernels is not None:
            kernel = getattr(row.pair_kernels, operation) or default
            _add(pairs, test + (_IS_PAIR if every not in (None, kernel) else ""), kernel)
            every = None if every is kernel else every
        if every is not None:
            _add(others, test, every)
    beyond = _write(operation, parameters, others[:-1], others[-1][1], home)
    empty = _write(operation, parameters, [], nothing, home)
    return inlined(_write(operation, parameters, pairs, _not_for_pairs(beyond, empty), home))


def _add(tests: Tests, test: str, kernel: Any) -> None:
    """Kinds in a row that share a kernel are one test."""
    if tests and tests[-1][1] is kernel:
        tests[-1] = f"{tests[-1][0]} or {test}", kernel
    else:
        tests.append((test, kernel))


def _write(operation: str, parameters: str, tests: Tests, last: Any, home: str) -> FunctionType:
    """The chain of tests as a function; ``last`` is a kernel, or text for what is returned."""
    space: dict[str, Any] = {"__name__": home}

    def called(kernel: Any) -> str:
        if isinstance(kernel, str):
            return kernel
        function = getattr(kernel, "py_func", kernel)
        name = f"{function.__module__.rpartition('.')[2]}_{function.__name__}"
        space[name] = kernel
        return f"{name}({parameters})"

    lines = [f"def {operation}({parameters}):", "    kind = g.kind[f]"]
    for test, kernel in tests:
        lines += [f"    if {test}:", f"        return {called(kernel)}"]
    lines.append(f"    return {called(last)}")
    text = "\n".join(lines) + "\n"
    file = f"<{operation} of {len(tests)} kinds and others, written by {__name__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # for tracebacks and debuggers
    exec(compile(text, file, "exec"), space)
    function = space[operation]
    assert isinstance(function, FunctionType)
    return function


def only_pairs(g: Any) -> bool:
    """Whether the Numba type g is that of a model of pairs."""
    return issubclass(g.instance_class, PairArrays)


def _not_for_pairs(implementation: Callable[..., Any], nothing: Callable[..., Any]) -> Any:
    """A function that is the implementation, or nothing when the model has only pairs: chosen by the type of the model,
    inside compiled functions when they are compiled."""

    @wraps(implementation)
    def others(g, *rest):
        return nothing(g, *rest) if isinstance(g, PairArrays) else implementation(g, *rest)

    def choose(g, *_):
        return nothing if only_pairs(g) else implementation

    # Numba wants the parameters by name
    choose.__signature__ = signature(implementation)  # type: ignore[attr-defined]
    overload(others, jit_options={"nogil": True, "forceinline": True})(choose)
    return others
