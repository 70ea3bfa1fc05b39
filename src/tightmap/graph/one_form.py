"""``@one_form``: kernels for which a model of pairs is a model like any other.

Numba sees the arrays of a model of pairs as a type of their own (``PairArrays``), so that kernels leave out the kinds
that such a model does not have.  A kernel that never looks at the kind of a factor, or has forms of its own for pairs,
gains nothing by that and would be compiled twice.  Marked so, it gets ``Arrays`` whenever Python calls it; a compiled
function that calls it passes on what it has.
"""

from __future__ import annotations

from typing import Any

from tightmap.graph.graph import Arrays


def one_form(kernel: Any) -> Any:
    """Decorator above ``@lean`` or ``@compiled``.  Without ``linking`` a kernel stays what it is."""
    if hasattr(kernel, "common"):
        kernel.common = Arrays
    return kernel
