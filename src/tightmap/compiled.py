"""``@compiled``: Numba functions that are cheap to compile when only other compiled functions call them.

Numba's own decorator treats every function as one that Python may call: it writes two wrappers for it, optimises it,
and turns it into machine code, once more in each function that it is linked into.  A method here is a hundred small
functions, of which Python calls five.  ``@compiled`` does for a function only what its callers need:

- called from a compiled function, it is translated and handed on, once for integers of all widths; nothing is
  optimised before the function that Python calls, which then is optimised as a whole;
- called from Python, it is compiled in full, and kept on disk.

That takes a third off the seconds of a first run.  What is on disk is used as long as no file of the package has
changed, whereas Numba looks at the file of the function itself only, and would keep code of callees long gone.

``@lean`` in addition counts no references: every call that passes a tuple of arrays increments and decrements a counter
for each of them, through a function pointer and atomically.  With the some thirty arrays of a model and its region
graph that is 0.3 microseconds per call, more than the work on a small table (measured: the message of a 4 x 4 pair
takes 0.17 instead of 1.7 microseconds).  In return neither a lean function nor anything it calls may allocate.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import compiler, event, sigutils, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.codegen import JITCodeLibrary
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.registry import CPUDispatcher

PREPARE = "tightmap:prepare"  # event of Numba's: a function that Python called is compiled or read from disk


class _LinkedLibrary(JITCodeLibrary):
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
        return _HASH_OF_FLAGS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, compiler.Flags) and self._values == other._values


_HASH_OF_FLAGS = hash(compiler.Flags())  # the same for all: it covers the names of the options only


class _Compiler(_FunctionCompiler):  # type: ignore[misc]
    def _translate(self, args: Any, return_type: Any, library: JITCodeLibrary | None, **flag_values: bool) -> Any:
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
        return self._translate(args, return_type, None, no_cfunc_wrapper=True)


class _LinkedCompiler(_Compiler):
    """Compiles a function for its compiled callers: no wrappers, no machine code."""

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        target = self.targetdescr.target_context
        library = _LinkedLibrary(target.codegen(), self.py_func.__qualname__)
        result = self._translate(
            args, return_type, library, no_compile=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
        )
        # callers find the function by an object that stands for it; Numba asks for a built-in one
        result = result._replace(entry_point=[].append)
        target.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return result


@cache
def _package_stamp() -> tuple[tuple[str, int, int], ...]:
    """What tells one state of the package's sources from another."""
    root = Path(__file__).parent
    stats = [(str(path.relative_to(root)), path.stat()) for path in sorted(root.rglob("*.py"))]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


class _PackageCache(FunctionCache):
    """Numba's cache on disk, valid while the whole package is unchanged."""

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        self._cache_file = IndexDataCacheFile(self._cache_path, self._impl.filename_base, _package_stamp())


class _Entry(CPUDispatcher):
    """The form of a compiled function that Python calls."""

    _cache: Any

    def __init__(self, py_func: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(py_func, {}, options)
        self._compiler = _EntryCompiler(py_func, self.targetdescr, options, {}, compiler.Compiler)

    def compile(self, sig: Any) -> Any:
        with event.trigger_event(PREPARE):
            if not isinstance(self._cache, _PackageCache):
                with suppress(RuntimeError):  # no place on disk that may be written to: compiled in every process
                    self._cache = _PackageCache(self.py_func)
            entry_point = super().compile(sig)
            result: Any = self.overloads[tuple(sigutils.normalize_signature(sig)[0])]
            if result.metadata is not None:  # compiled just now: the functions in it get what they look up at run time
                for environment in result._find_referenced_environments():
                    result.library.codegen.set_env(environment.env_name, environment)
            return entry_point


def _widened(kind: Any) -> Any:
    """int64 for literals and all integers but uint64, so that a function is not compiled for each width."""
    if isinstance(kind, types.IntegerLiteral) or (isinstance(kind, types.Integer) and kind != types.uint64):
        return types.int64
    return kind


class Compiled(CPUDispatcher):
    """The form that compiled functions call; called from Python, it passes the call on to the other form."""

    def __init__(self, py_func: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(py_func, {}, options)
        self._compiler = _LinkedCompiler(py_func, self.targetdescr, options, {}, compiler.Compiler)
        self.entry = _Entry(py_func, options)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        return super().get_call_template(tuple(_widened(kind) for kind in args), kws)

    def __call__(self, *args: Any) -> Any:
        return self.entry(*args)


def compiled(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorator with the options of ``numba.njit``; releases the interpreter's lock, lets division by zero be infinite.

    ::

        @compiled
        def total(x): ...

        @compiled(fastmath={"contract"})
        def product(x): ...
    """

    def decorate(function: Callable[..., Any]) -> Compiled:
        common = {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy"}
        return Compiled(function, {**common, **options})

    return decorate if function is None else decorate(function)


lean = compiled(_nrt=False)
