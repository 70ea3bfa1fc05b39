"""What the instructions of ``simd`` do, in plain Python: for kernels that are not compiled.

A pointer is the array itself, a vector a small object with the operators that kernels use.  Whoever reads or writes
outside an array learns of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LANES = 8


class Vector:
    """LANES floating-point numbers as one value, which no operation changes."""

    __slots__ = ("lanes",)

    def __init__(self, lanes: Any) -> None:
        self.lanes = lanes

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.lanes + other.lanes)

    def __sub__(self, other: Vector) -> Vector:
        return Vector(self.lanes - other.lanes)

    def __mul__(self, other: Vector) -> Vector:
        return Vector(self.lanes * other.lanes)

    def __truediv__(self, other: Vector) -> Vector:
        return Vector(self.lanes / other.lanes)


def _inside(ary: Any, index: Any, count: int) -> slice:
    if not 0 <= index <= len(ary) - count:
        raise IndexError(f"elements {index} to {index + count - 1} of {len(ary)}")
    return slice(int(index), int(index) + count)


def pointer(ary: Any) -> Any:
    return ary


def keep(ary: Any) -> None:
    return


def load(ary: Any, index: Any) -> Vector:
    return Vector(ary[_inside(ary, index, LANES)].copy())


def load_as(ary: Any, index: Any, like: Any) -> Vector:
    return Vector(ary[_inside(ary, index, LANES)].astype(like.dtype))


def store(ary: Any, index: Any, value: Vector) -> None:
    ary[_inside(ary, index, LANES)] = value.lanes


def get(ary: Any, index: Any) -> Any:
    return ary[_inside(ary, index, 1)][0]


def put(ary: Any, index: Any, value: Any) -> None:
    ary[_inside(ary, index, 1)] = value


def prefetch(ary: Any, index: Any) -> None:
    pass


def splat(scalar: Any) -> Vector:
    return Vector(np.full(LANES, scalar))


def cast(value: Vector, like: Any) -> Vector:
    return Vector(value.lanes.astype(like.dtype))


def choose_less(a: Vector, b: Vector, x: Vector, y: Vector) -> Vector:
    return Vector(np.where(a.lanes < b.lanes, x.lanes, y.lanes))


def minimum(a: Vector, b: Vector) -> Vector:
    return choose_less(a, b, a, b)


def maximum(a: Vector, b: Vector) -> Vector:
    return choose_less(b, a, a, b)


def absolute(value: Vector) -> Vector:
    return Vector(np.abs(value.lanes))


def shift_up(value: Vector, scalar: Any) -> Vector:
    return Vector(np.append(scalar, value.lanes[:-1]))


def shift_down(value: Vector, scalar: Any) -> Vector:
    return Vector(np.append(value.lanes[1:], scalar))


def replace_last(value: Vector, scalar: Any) -> Vector:
    return Vector(np.append(value.lanes[:-1], scalar))


def lane(value: Vector, index: Any) -> Any:
    return value.lanes[index]


def less_mask(a: Vector, b: Vector) -> int:
    return sum(1 << k for k in range(LANES) if a.lanes[k] < b.lanes[k])


def lane_sum(value: Vector) -> Any:
    total = value.lanes[0]
    for k in range(1, LANES):
        total = total + value.lanes[k]
    return total


def lane_min(value: Vector) -> Any:
    return value.lanes.min()
