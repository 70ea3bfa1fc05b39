"""The product of a tensor and vectors, (6)-(8): what all methods of the paper are written with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def contract(tables: Vector, mode: int, vectors: Sequence[Vector]) -> Vector:
    """The product of a tensor with the vectors at all modes but one, (6)-(8).

    Axes in front of a table and of its vectors, the same for all of them, count factors.
    """
    operands: list[Any] = [tables, [..., *range(len(vectors))]]
    for q, v in enumerate(vectors):
        if q != mode:
            operands += [v, [..., q]]
    out: Vector = np.einsum(*operands, [..., mode])
    return out
