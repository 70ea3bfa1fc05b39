"""Kernels without ``linking``: compiled by Numba's own decorator, or not compiled at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numba
import numpy as np

from tightmap.runtime import guard

CODE_OPTIONS = ("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT")  # settings of Numba that change code
_config: Any = numba.config
_OURS = ("nopython", "_nrt")  # options that njit sets itself, or that only ``linking`` understands


def interpreted(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """The function as it is, with division by zero that is infinite and without warnings, as in compiled code."""

    @wraps(function)
    def kernel(*args: Any, **keywords: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args, **keywords)

    kernel.py_func = function  # type: ignore[attr-defined]
    kernel.entry = kernel  # type: ignore[attr-defined]
    return kernel


def with_njit(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """What ``numba.njit`` makes of the function; ``lean`` ones count references like all others."""
    known = {name: value for name, value in options.items() if name not in _OURS}
    folder = _folder()
    kernel: Any = None
    if folder is not None:
        with suppress(RuntimeError), _caching_in(folder):  # the error: a function that is in no file
            kernel = numba.njit(cache=True, **known)(function)
    if kernel is None:
        kernel = numba.njit(**known)(function)
    kernel.entry = kernel
    return kernel


@cache
def _folder() -> str | None:
    """Where machine code of this very version of the package is kept; None where there is no place for it.

    Numba looks at the file of a function to see whether its machine code is up to date, not at those of the functions
    it calls.  A folder of its own for every version of the whole package keeps them apart.
    """
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(str(file.relative_to(package)).encode() + b"\0" + file.read_bytes())
    digest.update(repr((guard.CHECKED, [str(getattr(_config, name, None)) for name in CODE_OPTIONS])).encode())
    name = f"plain-{digest.hexdigest()[:16]}"
    given = _config.CACHE_DIR
    for place in (Path(given) if given else package / "__pycache__", Path.home() / ".cache" / "tightmap"):
        with suppress(OSError):
            (place / name).mkdir(parents=True, exist_ok=True)
            if os.access(place / name, os.W_OK):
                return str(place / name)
    return None


@contextmanager
def _caching_in(folder: str) -> Iterator[None]:
    """Functions that are decorated meanwhile keep their machine code in the folder."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = folder
    try:
        yield
    finally:
        _config.CACHE_DIR = before
