"""What a kernel was made from, as one short digest: the stamp under which its machine code is kept on disk.

Machine code may only be used again by a process whose kernels are the same.  Looking at source files cannot tell:
a file may have changed after it was imported, or have other content with the same size and time, or lie in an archive.
The fingerprint is therefore taken from the functions as they are in memory.  It covers the module of a kernel and all
modules of the same package whose names that module uses, and theirs in turn: byte code, constants, default values and
closures of their functions, and plain global values, because all of these end up in the machine code.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from enum import Enum
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(...), np.generic, np.dtype)
_known: dict[str, tuple[tuple[int, ...], bytes, tuple[str, ...]]] = {}


def fingerprint(function: FunctionType) -> str:
    """Digest of everything that the machine code of ``function`` is made from, as it is in this process."""
    package = function.__module__.partition(".")[0]
    modules = {function.__module__: b""}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        modules[name], used = _module(name, package)
        for other in used:
            if other not in modules:
                modules[other] = b""
                waiting.append(other)
    digest = hashlib.sha256(_code(function.__code__))
    for name in sorted(modules):
        digest.update(name.encode() + b"\0" + modules[name])
    return digest.hexdigest()


def _module(name: str, package: str) -> tuple[bytes, tuple[str, ...]]:
    """Digest of what a module defines, and the modules of the package whose names it uses."""
    module = sys.modules.get(name)
    if module is None:  # made by exec, or taken out again: the function itself is covered by its code
        return b"", ()
    content = vars(module)
    identity = tuple(map(id, content.values()))  # a module that was loaded again has other objects
    known = _known.get(name)
    if known is not None and known[0] == identity:
        return known[1], known[2]
    digest = hashlib.sha256()
    used: set[str] = set()
    for key, value in sorted(content.items(), key=lambda item: item[0]):
        if key.startswith("__"):
            continue
        home = value.__name__ if isinstance(value, ModuleType) else _home(value)
        if home is not None and home != name and home.partition(".")[0] == package:
            used.add(home)
        for part in _parts(value, name, set()):
            digest.update(key.encode() + b"\0" + part + b"\0")
    result = digest.digest(), tuple(sorted(used))
    _known[name] = identity, *result
    return result


def _home(value: Any) -> str | None:
    """The module in which a function, class or kernel was defined."""
    home = getattr(_function(value) or value, "__module__", None)
    return home if isinstance(home, str) else None


def _function(value: Any) -> FunctionType | None:
    """The Python function behind a kernel, an intrinsic or a wrapper."""
    for name in ("py_func", "_defn", "__wrapped__"):
        inner = getattr(value, name, None)
        if isinstance(inner, FunctionType):
            return inner
    return value if isinstance(value, FunctionType) else None


def _parts(value: Any, module: str, seen: set[int]) -> Iterator[bytes]:
    """Bytes that stand for a value, where it can matter to a kernel of the module."""
    if id(value) in seen:
        return
    if isinstance(value, Enum):
        yield repr((type(value).__qualname__, value.name, value.value)).encode()
        return
    if isinstance(value, _PLAIN):
        yield repr((type(value).__name__, value)).encode()
        return
    seen.add(id(value))
    function = _function(value)
    if function is not None:
        if function.__module__ == module:
            yield _code(function.__code__)
            options = getattr(value, "targetoptions", None) or {}
            yield repr(sorted((key, _ordered(option)) for key, option in options.items())).encode()
            inside = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
            for inner in (*inside, *(function.__defaults__ or ())):
                yield from _parts(inner, module, seen)
        else:
            yield f"{function.__module__}.{function.__qualname__}".encode()
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}".encode()
        if value.__module__ == module:
            for key, inner in sorted(vars(value).items()):
                if not key.startswith("__") or isinstance(inner, FunctionType):
                    yield key.encode()
                    yield from _parts(inner, module, seen)
    elif isinstance(value, tuple):  # lists, sets and dicts are no constants for Numba
        yield type(value).__name__.encode()
        for inner in value:
            yield from _parts(inner, module, seen)
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype.str, value.shape)).encode() + value.tobytes()
    else:
        yield type(value).__qualname__.encode()


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is assigned later
        return False


def _code(code: CodeType) -> bytes:
    """Digest of byte code with its constants and names; comments, line numbers and file names do not count."""
    shape = (code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    digest = hashlib.sha256(repr((shape, names)).encode())
    digest.update(code.co_code)
    digest.update(getattr(code, "co_exceptiontable", b""))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            digest.update(_code(constant))
        else:
            digest.update(_ordered(constant).encode())
    return digest.digest()


def _ordered(value: Any) -> str:
    """repr() that is the same in every process: sets have no order of their own."""
    if isinstance(value, set | frozenset):
        return f"set{sorted(map(_ordered, value))}"
    if isinstance(value, tuple):
        return f"tuple{[_ordered(v) for v in value]}"
    return f"{type(value).__name__} {value!r}"
