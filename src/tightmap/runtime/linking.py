"""Numba functions that are cheap to compile when only other compiled functions call them (``compiled`` says why).

Everything here builds on parts of Numba that it does not document, and that a new version may change.  So this file,
``keeping`` and ``hastening`` are the only ones that do: where they cannot be imported, ``compiled`` goes on with
Numba's own decorator.

- Called from a compiled function, a function is translated and handed on, once for integers of all widths; nothing is
  optimised before the function that Python calls, which then is optimised as a whole.
- Called from Python, it is compiled in full, and kept on disk (``keeping``).
"""

# mypy: allow-untyped-calls
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from inspect import isgeneratorfunction, signature
from typing import Any

from llvmlite.binding import ffi
from numba.core import compiler, event, sigutils, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher

from tightmap.runtime import hastening, keeping
from tightmap.runtime.clock import PREPARE, check_wall
from tightmap.runtime.forks import wait_before_fork


def _check_internals() -> None:
    """Raise AttributeError where this Numba does not have what the classes below replace or call.

    A method that is gone would otherwise be replaced in vain, and nobody would notice before a kernel is wrong.
    """
    needed: dict[Any, tuple[str, ...]] = {
        JITCodeLibrary: (
            "_optimize_final_module", "_finalize_final_module", "_finalize_dynamic_globals",
            "_verify_declare_only_symbols",
        ),
        _FunctionCompiler: ("_compile_core", "compile"),
        CPUDispatcher: ("compile", "get_call_template", "enable_caching"),
        compiler.CompileResult: ("_find_referenced_environments", "_replace"),
        **keeping.INTERNALS,
        **hastening.INTERNALS,
    }  # fmt: skip
    parameters: dict[Any, tuple[str, ...]] = {
        compiler.compile_extra: (
            "typingctx", "targetctx", "func", "args", "return_type", "flags", "locals", "library", "pipeline_class",
        ),
        _FunctionCompiler.__init__: ("py_func", "targetdescr", "targetoptions", "locals", "pipeline_class"),
        _FunctionCompiler._compile_core: ("args", "return_type"),
        **keeping.PARAMETERS,
        **hastening.PARAMETERS,
    }  # fmt: skip
    for owner, names in needed.items():
        for name in names:
            getattr(owner, name)
    for function, names in parameters.items():
        missing = set(names) - set(signature(function).parameters)
        if missing:
            raise AttributeError(f"{function.__qualname__} has no parameter {', '.join(sorted(missing))}")


_check_internals()


class LinkedLibrary(JITCodeLibrary):
    """Code that waits, as it is, to be linked into a function that Python calls."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _Flags(compiler.Flags):
    """Numba's flags, which it compares for every operation of a function, with a comparison that is quick."""

    __slots__ = ()
    _values: dict[str, Any]

    def __hash__(self) -> int:
        return _hash_of_flags()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, compiler.Flags) and self._values == other._values


@cache
def _hash_of_flags() -> int:
    return hash(compiler.Flags())  # the same for all: it covers the names of the options only


class _Compiler(_FunctionCompiler):  # type: ignore[misc]
    def translate(self, args: Any, return_type: Any, library: JITCodeLibrary | None, **flag_values: bool) -> Any:
        flags = _Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        for name, value in flag_values.items():
            setattr(flags, name, value)
        return compiler.compile_extra(
            self.targetdescr.typing_context,
            self.targetdescr.target_context,
            self.py_func,
            args=args,
            return_type=return_type,
            flags=flags,
            locals=self.locals,
            library=library,
            pipeline_class=self.pipeline_class,
        )


class _EntryCompiler(_Compiler):
    """Compiles a function that Python calls."""

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        with hastening.hastened(), _overloads_are_linked():
            return self.translate(args, return_type, None, no_cfunc_wrapper=True)


class LinkedCompiler(_Compiler):
    """Compiles a function for its compiled callers: no wrappers, no machine code."""

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        target = self.targetdescr.target_context
        library = LinkedLibrary(target.codegen(), self.py_func.__qualname__)
        return self.handed_on(
            self.translate(args, return_type, library, no_compile=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
        )

    def handed_on(self, result: Any) -> Any:
        """Callers find the function by an object that stands for it; Numba asks for a built-in one."""
        result = result._replace(entry_point=[].append)
        target = self.targetdescr.target_context
        target.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return result


def _compile_overload(self: Any, args: Any, return_type: Any) -> Any:
    """Numba's own functions (np.zeros, ...) in the same way: it makes machine code of each, which nobody calls."""
    if not self.targetoptions.get("no_cpython_wrapper") or isgeneratorfunction(self.py_func):
        return _original_compile_core(self, args, return_type)
    linked = LinkedCompiler(self.py_func, self.targetdescr, self.targetoptions, self.locals, self.pipeline_class)
    return linked._compile_core(args, return_type)


_original_compile_core = _FunctionCompiler._compile_core


@contextmanager
def _overloads_are_linked() -> Iterator[None]:
    """While a kernel is compiled; the caller holds the compiler's lock."""
    before = _FunctionCompiler._compile_core
    _FunctionCompiler._compile_core = _compile_overload
    try:
        yield
    finally:
        _FunctionCompiler._compile_core = before


class _Entry(CPUDispatcher):
    """The form of a compiled function that Python calls."""

    _cache: Any

    def __init__(self, py_func: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(py_func, {}, options)
        self._compiler = _EntryCompiler(py_func, self.targetdescr, options, {}, compiler.Compiler)

    def compile(self, sig: Any) -> Any:
        check_wall()
        with global_compiler_lock, event.trigger_event(PREPARE):
            if not isinstance(self._cache, keeping.Kept):
                self._cache = keeping.Kept(self.py_func)
            entry_point = super().compile(sig)
            result: Any = self.overloads[tuple(sigutils.normalize_signature(sig)[0])]
            if result.metadata is not None:  # compiled just now
                name_environments(result)
            return entry_point


def name_environments(result: Any) -> None:
    """The functions in machine code that was just made get what they look up at run time."""
    for environment in result._find_referenced_environments():
        result.library.codegen.set_env(environment.env_name, environment)


def _widened(kind: Any) -> Any:
    """int64 for literals and all integers but uint64, so that a function is not compiled for each width or constant.

    True and False are no reason either: LLVM leaves out what a constant switches off wherever it inlines the function.
    """
    if isinstance(kind, types.BooleanLiteral):
        return types.boolean
    if isinstance(kind, types.IntegerLiteral) or (isinstance(kind, types.Integer) and kind != types.uint64):
        return types.int64
    return kind


class Compiled(CPUDispatcher):
    """The form that compiled functions call; called from Python, it passes the call on to the other form."""

    common: Any = None  # a kind of tuple that all its subclasses are passed on as: one form for all of them

    def __init__(self, py_func: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(py_func, {}, options)
        self._compiler = LinkedCompiler(py_func, self.targetdescr, options, {}, compiler.Compiler)
        self.entry = _Entry(py_func, options)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(_widened(kind) for kind in args), kws)

    def __call__(self, *args: Any) -> Any:
        common = self.common
        if common is not None:
            args = tuple([common._make(a) if isinstance(a, common) else a for a in args])
        return self.entry(*args)


with suppress(AttributeError):  # LLVM is also called, for a moment, where machine code is thrown away
    wait_before_fork(ffi.lib._lock._lock)
