"""What a partitioned run reads: the costs of a grid, any rows of it at a time, from memory, a file or a function.

    E(x) = sum_p u_p(x_p) + sum_{p -> q} w_pq V(|x_p - x_q|),   q right of p, below p, and with diagonals below p aside

A tile is a fixed number of rows.  Everything that a run computes is defined on tiles (sums, random numbers, the order
of moves), so that the result depends on the height of a tile and never on who computes which of them.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.model.checks import as_array

Array = npt.NDArray[Any]
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))  # of edges, from their first end: right, down, and the diagonals
TILE = 256  # rows
LARGEST = 1e30  # cost: the iterates are in single precision, and methods add and square costs


class Source(Protocol):
    """Rows of an array of which no more than some rows need be in memory.  Other processes get it by pickling."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def read(self, first: int, last: int) -> Array:
        """The rows first..last, which the caller does not change."""

    def cut(self, first: int, last: int) -> Source:
        """A source that need only know these rows: what a worker is sent."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """An array, or some rows of it that keep their numbers."""

    array: Array
    shape: tuple[int, ...]
    first: int = 0  # number of the array's first row

    def read(self, first: int, last: int) -> Array:
        return self.array[first - self.first : last - self.first]

    def cut(self, first: int, last: int) -> Source:
        return InMemory(self.read(first, last), self.shape, first)


@dataclass(frozen=True)
class InFile:
    """An array in C order in a file, read by seeking: a mapping of the file would count as memory."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    offset: int

    def read(self, first: int, last: int) -> Array:
        row = int(np.prod(self.shape[1:]))
        kind = np.dtype(self.dtype)
        start = self.offset + first * row * kind.itemsize
        data = np.fromfile(self.path, kind, (last - first) * row, offset=start)
        if data.size != (last - first) * row:
            raise ModelError(f"{self.path}: ends before row {last}")
        return data.reshape(last - first, *self.shape[1:])

    def cut(self, first: int, last: int) -> Source:
        return self


@dataclass(frozen=True)
class InHdf5:
    """A dataset of an HDF5 file."""

    path: str
    dataset: str
    shape: tuple[int, ...]

    def read(self, first: int, last: int) -> Array:
        import h5py

        with h5py.File(self.path, "r") as file:
            return np.asarray(file[self.dataset][first:last])

    def cut(self, first: int, last: int) -> Source:
        return self


@dataclass(frozen=True)
class InZarr:
    """A zarr array in a folder."""

    path: str
    shape: tuple[int, ...]

    def read(self, first: int, last: int) -> Array:
        import zarr  # type: ignore[import-not-found,unused-ignore]

        return np.asarray(zarr.open(self.path, mode="r")[first:last])

    def cut(self, first: int, last: int) -> Source:
        return self


@dataclass(frozen=True)
class ByFunction:
    """Rows that are computed when they are needed: function(first, last) -> array of shape (last - first, ...)."""

    function: Callable[[int, int], Array]
    shape: tuple[int, ...]

    def read(self, first: int, last: int) -> Array:
        rows = as_array(self.function(first, last), f"rows {first}..{last}")
        if rows.shape != (last - first, *self.shape[1:]):
            wanted = (last - first, *self.shape[1:])
            raise ModelError(f"rows {first}..{last} must have the shape {wanted}, the function gave {rows.shape}")
        return rows

    def cut(self, first: int, last: int) -> Source:
        return self


def source_of(data: Any, shape: tuple[int, ...] | None = None) -> Source:
    """A source from an array, a memory-mapped one, a path (.npy, .zarr, FILE.h5:DATASET), or a function and a shape."""
    if callable(data):
        if shape is None:
            raise ModelError("a function of rows needs the shape of the whole: shape=(height, width, labels)")
        try:
            sizes = tuple(operator.index(n) for n in shape)
        except TypeError:
            raise ModelError(f"shape: expected (height, width, labels) as whole numbers, got {shape!r}") from None
        return ByFunction(data, sizes)
    if isinstance(data, str | os.PathLike):
        return _from_path(os.fspath(data))
    if isinstance(data, np.memmap) and data.flags.c_contiguous:
        place = _place_in_file(data)
        if place is not None:
            return place
    if hasattr(data, "read") and hasattr(data, "cut") and hasattr(data, "shape"):
        return data
    array = as_array(data, "rows")
    return InMemory(array, array.shape)


def _place_in_file(data: np.memmap[Any, Any]) -> InFile | None:
    """Where a mapped array begins in its file; None for what is no plain part of one."""
    whole = data
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    if data.filename is None or whole.filename is None:
        return None
    begin = data.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    if data.mode in ("r+", "w+"):
        data.flush()
    return InFile(str(data.filename), data.shape, data.dtype.str, int(whole.offset) + begin)


def _from_path(path: str) -> Source:
    name, _, dataset = path.rpartition(":")
    try:
        if name.endswith((".h5", ".hdf5")):
            import h5py

            with h5py.File(name, "r") as file:
                found = file.get(dataset) if dataset else None
                if not isinstance(found, h5py.Dataset):
                    raise ModelError(f"{name}: has no dataset {dataset!r}")
                return InHdf5(os.path.abspath(name), dataset, tuple(found.shape))
        if path.endswith(".zarr"):
            import zarr

            return InZarr(os.path.abspath(path), tuple(zarr.open(path, mode="r").shape))
        if path.endswith(".npy") and Path(path).is_file():
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if not mapped.flags.c_contiguous:
                raise ModelError(f"{path}: must be in C order")
            return InFile(os.path.abspath(path), mapped.shape, mapped.dtype.str, int(mapped.offset))
    except ModuleNotFoundError as error:
        raise ModelError(f"{path}: {error.name} is needed to read it; pip install {error.name}") from None
    except ModelError:
        raise
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{path}: cannot be read ({error})") from None
    raise ModelError(f"{path}: expected a .npy or .zarr file that exists, or FILE.h5:DATASET")


def _checked(rows: Array, what: str) -> npt.NDArray[np.float64]:
    """Costs as float64, none of them too large for single precision."""
    if rows.dtype.kind not in "biuf":
        raise ModelError(f"{what}: expected numbers, got {rows.dtype}")
    out = rows.astype(np.float64, copy=False)
    if not np.isfinite(out).all():
        raise ModelError(f"{what}: all costs must be finite")
    if out.size and max(out.max(), -out.min()) > LARGEST:
        raise ModelError(f"{what}: a cost is above {LARGEST:g}, which single precision cannot count with; scale them")
    return out


@dataclass(frozen=True, eq=False)
class GridRows:
    """A grid model of which any rows can be had."""

    unary: Source  # (height, width, labels)
    profile: tuple[float, ...]  # V(0) = 0, V(1), ... for every difference of labels
    weights: (
        tuple[float, ...] | Source
    )  # one per direction (two, or four with diagonals), or (height, directions, width)
    tile: int = TILE

    @property
    def height(self) -> int:
        return self.unary.shape[0]

    @property
    def width(self) -> int:
        return self.unary.shape[1]

    @property
    def labels(self) -> int:
        return self.unary.shape[2]

    @property
    def directions(self) -> int:
        return len(self.weights) if isinstance(self.weights, tuple) else self.weights.shape[1]

    @property
    def label_type(self) -> type:
        return np.uint8 if self.labels <= 1 << 8 else np.uint16 if self.labels <= 1 << 16 else np.uint32

    @property
    def tiles(self) -> int:
        """The last tile takes what is left, so that none is lower than the others."""
        return max(1, self.height // self.tile)

    def rows_of(self, first: int, last: int) -> tuple[int, int]:
        """Rows of the tiles first..last."""
        return first * self.tile, self.height if last == self.tiles else last * self.tile

    def cut(self, first: int, last: int) -> GridRows:
        """The same model for a worker that reads no other rows."""
        weights = self.weights if isinstance(self.weights, tuple) else self.weights.cut(first, last)
        return replace(self, unary=self.unary.cut(first, last), weights=weights)

    def unaries(self, first: int, last: int) -> npt.NDArray[np.float64]:
        """(rows, width, labels)"""
        return _checked(self.unary.read(first, last), f"unaries of the rows {first}..{last}")

    def planes(self, first: int, last: int) -> npt.NDArray[np.float64]:
        """(directions, rows, width) weights at the first ends of edges, zero where an edge would leave the image."""
        planes = np.zeros((self.directions, last - first, self.width))
        if isinstance(self.weights, tuple):
            planes += np.array(self.weights)[:, None, None]
        else:
            planes += _checked(self.weights.read(first, last), f"weights of the rows {first}..{last}").transpose(
                1, 0, 2
            )
        for plane, (down, right) in zip(planes, DIRECTIONS, strict=False):
            if down and last == self.height:
                plane[-1] = 0.0
            if right > 0:
                plane[:, -1] = 0.0
            elif right < 0:
                plane[:, 0] = 0.0
        return planes
