"""Machine code on disk: what came with the package (``shipped``), and what processes of this user have compiled.

A kernel is looked for in the package, then in the user's cache, and is compiled where neither has it.  What is on disk
is used as long as the function and all modules it uses are the same in memory (``fingerprint``), whereas Numba looks at
the file of the function itself only, and would keep code of callees long gone.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import glob
import hashlib
import io
import itertools
import pickle
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import __version__ as numba_version
from numba.core import compiler, config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, NullCache
from numba.core.registry import cpu_target
from numba.core.runtime import _nrt_python  # type: ignore[attr-defined]

from tightmap.runtime import guard
from tightmap.runtime.fingerprint import fingerprint
from tightmap.runtime.lazy import lazy
from tightmap.runtime.plain import CODE_OPTIONS
from tightmap.runtime.shipped import Shipped, shipped

# what is used of Numba without being documented, for ``linking`` to look at before anything is compiled
INTERNALS: dict[Any, tuple[str, ...]] = {
    FunctionCache: ("load_overload", "save_overload", "_index_key", "_load_overload"),
    CompileResultCacheImpl: ("reduce", "filename_base"),
    NullCache: ("load_overload", "save_overload", "cache_path"),
    compiler.CompileResult: ("_rebuild", "_reduce"),
    _nrt_python: ("c_helpers",),
    IndexDataCacheFile: (
        "_load_index", "_save_index", "_load_data", "_save_data", "_data_name", "_data_path", "_open_for_write",
        "_dump",
    ),
}  # fmt: skip
PARAMETERS: dict[Any, tuple[str, ...]] = {
    IndexDataCacheFile.__init__: ("cache_path", "filename_base", "source_stamp"),
    compiler.CompileResult._rebuild: ("target_context", "libdata", "fndesc", "typeann"),
}

CHECKSUM = 32  # bytes of it before machine code
HASHING = b"_numba_hashsecret_"  # names that only Numba's registries of functions give an address
_VARIANT = "-checked" if guard.CHECKED else ""  # both kinds are kept: neither drives out the other


def _ready_to_load(target_context: Any, code: bytes) -> None:
    """What machine code needs before it is linked: the addresses of the functions that it allocates memory with.

    Numba instead gets ready to compile: it imports all that it can translate, and SciPy's linear algebra, and has LLVM
    compile a few functions of its own.  That is 45 MiB and a fifth of a second, for nothing in a process that finds all
    its kernels on disk.
    """
    if HASHING in code or getattr(config, "NRT_STATS", False):
        target_context.refresh()
    _name_allocator()


@cache
def _name_allocator() -> None:
    for name, address in _nrt_python.c_helpers.items():
        llvm.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


class _CheckedFiles(IndexDataCacheFile):
    """Files of Numba's cache that may be torn, cut short or written by several processes at once.

    Machine code is preceded by its checksum and is on disk before the index names it.  Whatever cannot be read counts
    as absent, so the kernel is compiled and written again.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            index = super()._load_index()
        except Exception:  # whatever unpickling a damaged file may raise
            return {}
        return index if isinstance(index, dict) else {}

    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:
            checksum, data = file.read(CHECKSUM), file.read()
        if hashlib.sha256(data).digest() != checksum:
            return None
        _ready_to_load(cpu_target.target_context, data)
        return pickle.loads(data)

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(content).digest() + content)

    def save(self, key: Any, data: Any) -> None:
        index = self._load_index()
        taken = set(index.values())
        name = index.get(key) or next(n for n in map(self._data_name, itertools.count(1)) if n not in taken)
        self._save_data(name, data)
        index[key] = name
        self._save_index(index)


class _CodeOnly(CompileResultCacheImpl):
    """What is kept of a kernel: its machine code.

    Numba keeps the LLVM code as well, for functions that it may be linked into, and a listing of the types.  But no
    function is ever linked with one that Python calls.  Without them a file is smaller and read more quickly.
    """

    def reduce(self, cres: Any) -> Any:
        bare = cres._replace(type_annotation="")  # the listing: writing it takes longer than all the rest
        (name, kind, (code, _)), fndesc, *rest = super().reduce(bare)
        made = {function.name for function in cres.library.get_defined_functions()}
        names = made & {fndesc.llvm_func_name, fndesc.llvm_cpython_wrapper_name}
        return (name, kind, (code, _defining(names))), fndesc, *rest


def _defining(names: Iterable[str]) -> bytes:
    """LLVM code from which Numba learns that a kernel has functions of these names."""
    module = ir.Module()
    for name in names:
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), ()), name)
        ir.IRBuilder(function.append_basic_block()).ret_void()
    return bytes(llvm.parse_assembly(str(module)).as_bitcode())


class _OwnCache(FunctionCache):
    """Numba's cache on disk, valid for the very functions that this process has imported."""

    _impl_class = _CodeOnly

    def __init__(self, py_func: Any, stamp: Any, form: str) -> None:
        super().__init__(py_func)
        base = self._impl.filename_base + form + _VARIANT
        self._cache_file = _CheckedFiles(self._cache_path, base, stamp)
        # the stamp is part of the name of the data, so that no index ever leads to code of another version
        short = hashlib.sha256(repr(stamp).encode()).hexdigest()[:12]
        self._cache_file._data_name_pattern = f"{base}.{short}.{{number:d}}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return self._load_overload(sig, target_context)  # not what Numba calls first: see _ready_to_load
        except Exception:  # readable, but not what this version of Numba makes of it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # no room, or no longer allowed: compiled again by the next process
            super().save_overload(sig, data)
            self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Remove machine code of this function that the index does not name."""
        kept = set(self._cache_file._load_index().values())
        prefix = self._cache_file._index_name.removesuffix("nbi")
        for path in Path(self._cache_path).glob(glob.escape(prefix) + "*.nbc"):
            if path.name not in kept:
                with suppress(OSError):
                    path.unlink()


class Kept(NullCache):
    """All places where the machine code of one function may be, for all signatures of it.

    ``form`` is part of the names of its files: a function may be kept as one that Python calls and as a shared one.
    """

    def __init__(self, py_func: Any, form: str = "") -> None:
        self._py_func, self._form = py_func, form
        self.stamp = fingerprint(py_func), tuple(str(getattr(config, name, None)) for name in CODE_OPTIONS)
        self._shipped = shipped(py_func.__module__.partition(".")[0])

    @lazy
    def _own(self) -> NullCache | _OwnCache:
        try:
            return _OwnCache(self._py_func, self.stamp, self._form)
        except (RuntimeError, OSError):  # no place on disk that may be written to: compiled in every process
            return NullCache()

    @property
    def cache_path(self) -> str | None:
        return self._own.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = None
        if self._shipped is not None:
            with suppress(Exception):  # whatever a damaged or foreign file leads to
                found = self._from_package(self._shipped, sig, target_context)
        return self._own.load_overload(sig, target_context) if found is None else found

    def save_overload(self, sig: Any, data: Any) -> None:
        self._own.save_overload(sig, data)

    def _from_package(self, kernels: Shipped, sig: Any, target_context: Any) -> Any:
        code = self._py_func.__code__
        folder = kernels.place(code.co_filename)
        if folder is None:
            return None
        name = f"{Path(code.co_filename).stem}.{self._py_func.__qualname__}".replace("<", "").replace(">", "")
        version = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"
        content = kernels.read(_inside(folder, f"{name}-{code.co_firstlineno}.{version}{self._form}{_VARIANT}.nbi"))
        if content is None:
            return None
        index = io.BytesIO(content)
        if pickle.load(index) != numba_version:
            return None
        stamp, overloads = pickle.load(index)
        if stamp != self.stamp:
            return None
        _, (triple, *_), hashes = FunctionCache._index_key(self, sig, target_context.codegen())  # type: ignore[arg-type]
        data = overloads.get((sig, (triple, kernels.cpu, kernels.features), hashes))
        content = None if data is None else kernels.read(_inside(folder, data))
        if content is None:
            return None
        _ready_to_load(target_context, content)
        return compiler.CompileResult._rebuild(target_context, *pickle.loads(content[CHECKSUM:]))


def _inside(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"
