"""Parts of Numba's compiler in a quicker form, in force while kernels of this package are compiled.

Half of the time in which a kernel is compiled goes into Python code of Numba that works things out which it has worked
out before: which addition two integers have, how many bytes an array's record takes, which variables are alive after
each of its passes.  ``hastened`` replaces these functions for as long as a kernel is being compiled, under the lock
that Numba compiles under, and puts the original ones back; functions that others compile are not touched.  The machine
code is the same to the last bit: for whatever is not the common case Numba's own functions are asked.
"""

# mypy: allow-untyped-calls, allow-untyped-defs
from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir as llvm_ir
from llvmlite.ir.values import Block, NamedValue
from numba.core import config, ir, postproc, transforms, types
from numba.core.base import BaseContext
from numba.core.codegen import CPUCodegen, CPUCodeLibrary
from numba.core.targetconfig import ConfigStack
from numba.core.typing.context import BaseContext as TypingContext

# what is used of Numba without being documented, for ``linking`` to look at before anything is compiled
INTERNALS: dict[Any, tuple[str, ...]] = {
    ir.Inst: ("list_vars", "_rec_list_vars"),
    ir.Stmt: ("list_vars",),
    ir.Expr: ("list_vars",),
    postproc.PostProcessor: ("run",),
    postproc: ("VariableLifetime",),
    transforms: ("canonicalize_cfg",),
    types.BaseFunction: ("get_call_type", "get_impl_key"),
    BaseContext: ("get_abi_sizeof",),
    TypingContext: ("find_matching_getattr_template", "resolve_function_type"),
    ConfigStack: ("top_or_none",),
    Block: ("descr", "_format_name"),
    CPUCodeLibrary: ("add_ir_module", "_optimize_functions"),
    CPUCodegen: ("_function_pass_manager",),
    NamedValue: ("_to_string", "get_reference"),
}
PARAMETERS: dict[Any, tuple[str, ...]] = {
    postproc.PostProcessor.run: ("self", "emit_dels", "extend_lifetimes"),
    types.BaseFunction.get_call_type: ("self", "context", "args", "kws"),
    BaseContext.get_abi_sizeof: ("self", "ty"),
    TypingContext.find_matching_getattr_template: ("self", "typ", "attr"),
    TypingContext.resolve_function_type: ("self", "func", "args", "kws"),
    Block.descr: ("self", "buf"),
    CPUCodeLibrary.add_ir_module: ("self", "ir_module"),
    CPUCodeLibrary._optimize_functions: ("self", "ll_module"),
}

_call_types: dict[Any, Any] = {}
_attributes: dict[Any, Any] = {}
_sizes: dict[tuple[str, str], int] = {}


# ------------------------------------------------------------------------------------- variables of a statement


def _collect(value: Any, found: list[Any]) -> None:
    """Append the variables in a part of a statement, in Numba's order."""
    kind = type(value)
    if kind is ir.Var:
        found.append(value)
    elif kind is ir.Expr:
        for part in value._kws.values():
            if type(part) not in _LEAVES:
                _collect(part, found)
    elif kind in _LEAVES:
        pass
    elif kind is tuple or kind is list:
        for part in value:
            _collect(part, found)
    elif kind is dict:
        for part in value.values():
            _collect(part, found)
    elif isinstance(value, ir.Inst):
        found.extend(value.list_vars())
    elif isinstance(value, list | tuple):
        for part in value:
            _collect(part, found)
    elif isinstance(value, dict):
        for part in value.values():
            _collect(part, found)
    else:
        _LEAVES.add(kind)


_LEAVES: set[type] = {str, int, float, bool, type(None), ir.Loc}  # and what else turns out to have no parts


def _variables_of_statement(self: Any) -> list[Any]:
    found: list[Any] = []
    for part in self.__dict__.values():
        if type(part) not in _LEAVES:
            _collect(part, found)
    return found


def _variables_of_expression(self: Any) -> list[Any]:
    found: list[Any] = []
    for part in self._kws.values():
        if type(part) not in _LEAVES:
            _collect(part, found)
    return found


# --------------------------------------------------------------------------------------------- after each pass


def _post_process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Without the variables alive at the entry of blocks, which only generators and object mode ask for."""
    if emit_dels or self.func_ir.is_generator:
        _original_post_process(self, emit_dels, extend_lifetimes)
        return
    self.func_ir.blocks = transforms.canonicalize_cfg(self.func_ir.blocks)
    self.func_ir.variable_lifetime = postproc.VariableLifetime(self.func_ir.blocks)
    self.func_ir.generator_info = None


# ------------------------------------------------------------------------------------------------------- types


def _call(function: Any, context: Any, args: Any, kws: Any) -> Any:
    """What a call is known by.  Flags belong to it: Numba's own functions are compiled for each set of them."""
    named = tuple([(name, kind._code) for name, kind in kws.items()]) if kws else ()
    return function._code, id(context), tuple([kind._code for kind in args]), named, ConfigStack.top_or_none()


def _call_type(self: Any, context: Any, args: Any, kws: Any) -> Any:
    """The signature of a call; Numba tries all definitions of an operator, dozens, for each of its uses."""
    key = _call(self, context, args, kws)
    found = _call_types.get(key)
    if found is None:
        signature: Any = _original_call_type(self, context, args, kws)
        _call_types[key] = signature, self._impl_keys[signature.args]
        return signature
    signature, implementation = found
    self._impl_keys[signature.args] = implementation  # another function may have asked with other flags meanwhile
    return signature


def _function_type(self: Any, func: Any, args: Any, kws: Any) -> Any:
    """The same, one step earlier: without a look at what has failed before, which this has not."""
    if type(func) is types.Function and _call(func, self, args, kws) in _call_types:
        return _call_type(func, self, args, kws)
    return _original_function_type(self, func, args, kws)


def _attribute(self: Any, typ: Any, attr: str) -> Any:
    key = typ._code, attr, id(self), ConfigStack.top_or_none()
    try:
        return _attributes[key]
    except KeyError:
        found = _attributes[key] = _original_attribute(self, typ, attr)
        return found


@cache
def _layout(target_data: Any) -> str:
    """LLVM would write it anew for every question."""
    return str(target_data)


def _size(self: Any, ty: Any) -> int:
    """Bytes of a type; Numba has LLVM read a module with a variable of that type."""
    if isinstance(ty, llvm_ir.IdentifiedStructType):  # its text is a name only
        return _original_size(self, ty)
    key = str(ty), _layout(self.target_data)
    found = _sizes.get(key)
    if found is None:
        found = _sizes[key] = _original_size(self, ty)
    return found


# -------------------------------------------------------------------------------------------------------- text


def _text(self: Any, buf: list[str]) -> None:
    """The text of a block without a string for each of its lines, on which a type may take three thousand letters."""
    buf.append(f"{self._format_name()}:\n")
    for line in self.instructions:
        if type(line)._to_string is not NamedValue._to_string:
            buf.append(f"  {line}\n")
            continue
        buf.append("  " if isinstance(line.type, llvm_ir.VoidType) else f"  {line.get_reference()} = ")
        line.descr(buf)
        buf.append("\n")


def _add_module(self: Any, ir_module: Any) -> None:
    """What was translated exists as text now.  Its objects refer to one another in circles: taken apart, they are gone
    at once, and there is little left for the search for garbage."""
    _original_add_module(self, ir_module)
    for function in ir_module.functions:
        for block in function.blocks:
            block.instructions, block.terminator = [], None


def _optimise_functions(self: Any, ll_module: Any) -> None:
    """Without the functions that are only named in a module, most of them, for each of which passes would be set up."""
    if getattr(config, "LLVM_PASS_TIMINGS", False):
        _original_optimise(self, ll_module)
        return
    ll_module.data_layout = self._codegen._data_layout
    for function in ll_module.functions:
        if not function.is_declaration:
            manager, builder = self._codegen._function_pass_manager()
            manager.run(function, builder)


_original_optimise = CPUCodeLibrary._optimize_functions
_original_add_module = CPUCodeLibrary.add_ir_module
_original_post_process = postproc.PostProcessor.run
_original_call_type = types.BaseFunction.get_call_type
_original_function_type = TypingContext.resolve_function_type
_original_attribute = TypingContext.find_matching_getattr_template
_original_size = BaseContext.get_abi_sizeof

_QUICKER: list[tuple[Any, str, Callable[..., Any]]] = [
    (ir.Stmt, "list_vars", _variables_of_statement),
    (ir.Expr, "list_vars", _variables_of_expression),
    (postproc.PostProcessor, "run", _post_process),
    (types.BaseFunction, "get_call_type", _call_type),
    (TypingContext, "resolve_function_type", _function_type),
    (TypingContext, "find_matching_getattr_template", _attribute),
    (BaseContext, "get_abi_sizeof", _size),
    (Block, "descr", _text),
    (CPUCodeLibrary, "add_ir_module", _add_module),
    (CPUCodeLibrary, "_optimize_functions", _optimise_functions),
]


class hastened:
    """While a kernel is compiled; the caller holds the compiler's lock."""

    __slots__ = ("_collecting", "_originals")
    _depth = 0

    def __enter__(self) -> None:
        hastened._depth += 1
        if hastened._depth > 1:
            return
        self._originals = [(owner, name, owner.__dict__[name]) for owner, name, _ in _QUICKER]
        for owner, name, quicker in _QUICKER:
            setattr(owner, name, quicker)
        # the compiler makes millions of objects and hardly any cycles: looking for them takes a tenth of the time
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *raised: object) -> None:
        hastened._depth -= 1
        if hastened._depth:
            return
        for owner, name, original in self._originals:
            setattr(owner, name, original)
        if self._collecting:
            gc.enable()
        _call_types.clear()
        _attributes.clear()
