"""Functions whose machine code exists once, for all kernels that call them.

A kernel is optimised as a whole, with everything it calls (``linking``).  That is right for small functions, which are
inlined, and a waste for one that is large and never inlined: the min-marginal of factors of any kind takes LLVM two
seconds, and sixteen kernels call it.  A shared function is compiled by itself and kept on disk by itself (``keeping``);
kernels know no more of it than its name, which is the same in every process:

- its symbol has a digest of what it was made from in the place of a number that counts the functions of a process;
- a kernel that is read from disk first asks for the functions that it calls (``_provide``, which Numba runs as part of
  its ``reload_init``), and is given up if these are not the ones that it was linked with.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import Any

import llvmlite.binding as llvm
from numba.core import compiler
from numba.core.base import BaseContext
from numba.core.codegen import JITCodeLibrary
from numba.core.funcdesc import qualifying_prefix

from tightmap.runtime import keeping
from tightmap.runtime.linking import Compiled, LinkedCompiler, LinkedLibrary, name_environments

# what is used of Numba without being documented; see ``linking``
for _owner, _name in ((BaseContext, "mangler"), (JITCodeLibrary, "_get_module_for_linking")):
    getattr(_owner, _name)
if not {"reload_init", "fndesc", "library"} <= set(compiler.CompileResult._fields):
    raise AttributeError("a CompileResult has other parts")

FORM = "-shared"  # part of the names of its files: the same function may be one that Python calls


class _Elsewhere(LinkedLibrary):
    """Stands for code that is not linked but called: there is nothing in it."""

    def _get_module_for_linking(self) -> Any:
        self._ensure_finalized()
        return self._final_module


class _SharedCompiler(LinkedCompiler):
    def __init__(self, *args: Any, apart: Callable[..., bool]) -> None:
        super().__init__(*args)
        self._apart = apart
        self._provided: dict[Any, Any] = {}  # machine code is dropped with the last reference to it

    def _compile_core(self, args: Any, return_type: Any) -> Any:
        if not self._apart(*args):
            return super()._compile_core(args, return_type)
        code = self.provide(tuple(args))
        target, function = self.targetdescr.target_context, self.py_func
        library = _Elsewhere(target.codegen(), function.__qualname__)
        needed = function.__module__, function.__qualname__, tuple(args), code.fndesc.llvm_func_name
        library._reload_init.add(partial(_provide, *needed))
        return self.handed_on(code._replace(library=library))

    def provide(self, args: Any) -> Any:
        """The machine code for arguments of these types, from disk or compiled now; it can be called by its name."""
        code = self._provided.get(args)
        if code is None:
            target = self.targetdescr.target_context
            kept = keeping.Kept(self.py_func, FORM)
            code = kept.load_overload(args, target)
            if code is None:
                with _lasting_names(target, self.py_func, kept.stamp):
                    code = self.translate(args, None, None, no_cpython_wrapper=True, no_cfunc_wrapper=True)
                name_environments(code)
                kept.save_overload(args, code)
            name = code.fndesc.llvm_func_name
            llvm.add_symbol(name, code.library.get_pointer_to_function(name))
            self._provided[args] = code
        return code


class Shared(Compiled):
    """``Compiled`` that is called, not linked, where its arguments have types for which ``apart`` is true."""

    def __init__(self, py_func: Callable[..., Any], options: dict[str, Any], apart: Callable[..., bool]) -> None:
        super().__init__(py_func, options)
        self._compiler = _SharedCompiler(py_func, self.targetdescr, options, {}, compiler.Compiler, apart=apart)


def _provide(module: str, function: str, args: Any, name: str) -> None:
    """What a kernel on disk needs before it is loaded; LLVM would end the process if it did not find the name."""
    code = attrgetter(function)(import_module(module))._compiler.provide(args)
    if code.fndesc.llvm_func_name != name:
        raise RuntimeError(f"{module}.{function} is not the one that this kernel was compiled with")


@contextmanager
def _lasting_names(target: Any, function: Any, stamp: Any) -> Iterator[None]:
    """While the function is compiled, its name is made from what it is; those of others are made as always."""
    plain, outer = target.mangler, vars(target).get("mangler")  # a shared function may call another one
    own = qualifying_prefix(function.__module__, function.__qualname__)
    digest = hashlib.sha256(repr(stamp).encode()).hexdigest()[:16]

    def mangler(name: str, types: Any, *, abi_tags: tuple[str, ...] = (), uid: int | None = None) -> Any:
        if name in (own, f".NumbaEnv.{own}"):
            return plain(name, types, abi_tags=(*abi_tags, digest), uid=None)
        return plain(name, types, abi_tags=abi_tags, uid=uid)

    target.mangler = mangler
    try:
        yield
    finally:
        if outer is None:
            del target.mangler
        else:
            target.mangler = outer
