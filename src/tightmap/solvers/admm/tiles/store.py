"""Where the iterates and the labels of a partitioned run are: in the memory of one process, shared, or in files.

A step of a run reads some arrays and writes others, never the same: whoever dies in the middle of a step leaves its
input as it was, and the step is simply done again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tightmap.errors import OptionError
from tightmap.runtime.simd import LANES
from tightmap.solvers.admm.tiles.rows import GridRows

Array = npt.NDArray[Any]
ITERATES = ("x1", "x2", "y")
LABELLINGS = ("labels0", "labels1", "labels2")


class Layout(NamedTuple):
    """One array: the numbers in a row, and their type."""

    row: int
    dtype: str


def layouts(model: GridRows, dtype: type) -> dict[str, Layout]:
    """All arrays of a run: iterates twice, for before and after some iterations, and three labellings."""
    columns = -(-model.width // LANES) * LANES
    out = {
        f"{name}.{side}": Layout(columns * model.labels, np.dtype(dtype).str) for name in ITERATES for side in (0, 1)
    }
    out.update({name: Layout(model.width, np.dtype(model.label_type).str) for name in LABELLINGS})
    return out


class Store(Protocol):
    """Rows of named arrays."""

    def read(self, name: str, first: int, last: int) -> Array:
        """The rows first..last; not to be changed, and good until the next write."""

    def write(self, name: str, first: int, rows: Array) -> None: ...


class LocalStore:
    """Arrays of this process: all rows, or those of one worker with the rows around them."""

    def __init__(self, arrays: dict[str, Layout], first: int, last: int) -> None:
        self.first, self.last = first, last
        self.arrays = {name: np.zeros((last - first, a.row), a.dtype) for name, a in arrays.items()}

    def read(self, name: str, first: int, last: int) -> Array:
        return self.arrays[name][first - self.first : last - self.first]

    def write(self, name: str, first: int, rows: Array) -> None:
        self.arrays[name][first - self.first : first - self.first + len(rows)] = rows


class SharedStore:
    """Arrays in shared memory.  The process that made them removes them; if it is killed, Python's tracker does."""

    def __init__(self, arrays: dict[str, Layout], height: int, names: dict[str, str] | None = None) -> None:
        self._blocks: list[SharedMemory] = []
        self._own = names is None
        self.layouts, self.height = arrays, height
        self.names: dict[str, str] = {}
        self.arrays: dict[str, Array] = {}
        if names is None:
            _check_room(sum(height * a.row * np.dtype(a.dtype).itemsize for a in arrays.values()))
        try:
            for name, a in arrays.items():
                size = max(1, height * a.row * np.dtype(a.dtype).itemsize)
                block = SharedMemory(create=True, size=size) if names is None else SharedMemory(names[name])
                self._blocks.append(block)
                self.names[name] = block.name
                self.arrays[name] = np.ndarray((height, a.row), a.dtype, block.buf)
        except BaseException:
            self.close()
            raise

    def read(self, name: str, first: int, last: int) -> Array:
        return self.arrays[name][first:last]

    def write(self, name: str, first: int, rows: Array) -> None:
        self.arrays[name][first : first + len(rows)] = rows

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedStore, (self.layouts, self.height, self.names)

    def close(self) -> None:
        self.arrays.clear()
        blocks, self._blocks = self._blocks, []
        for block in blocks:
            with suppress(BufferError):  # somebody still looks at an array: the memory goes when they are done
                block.close()
            if self._own:
                with suppress(FileNotFoundError):
                    block.unlink()


def _check_room(size: int) -> None:
    """A full /dev/shm kills processes where they write, so that is looked at before."""
    with suppress(OSError, AttributeError):
        stat = os.statvfs("/dev/shm")
        free = stat.f_bavail * stat.f_frsize
        if size > free:
            raise OptionError(
                f"{size / 2**30:.1f} GiB of shared memory are needed and {free / 2**30:.1f} GiB are free; "
                "checkpoint=FOLDER keeps the iterates in files instead"
            )


class FileStore:
    """Arrays in files of one folder, read and written by seeking: no more than the rows at hand are in memory."""

    def __init__(self, arrays: dict[str, Layout], height: int, folder: str) -> None:
        self.folder, self.layouts, self.height = folder, arrays, height
        for name, a in arrays.items():
            size = height * a.row * np.dtype(a.dtype).itemsize
            path = self._path(name)
            if not path.exists() or path.stat().st_size != size:
                with open(path, "wb") as file:
                    file.truncate(size)

    def _path(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.bin"

    def read(self, name: str, first: int, last: int) -> Array:
        a = self.layouts[name]
        kind = np.dtype(a.dtype)
        rows = np.fromfile(self._path(name), kind, (last - first) * a.row, offset=first * a.row * kind.itemsize)
        return rows.reshape(last - first, a.row)

    def write(self, name: str, first: int, rows: Array) -> None:
        a = self.layouts[name]
        kind = np.dtype(a.dtype)
        with open(self._path(name), "r+b") as file:
            file.seek(first * a.row * kind.itemsize)
            file.write(np.ascontiguousarray(rows, kind).data)

    def close(self) -> None:
        """Files stay."""
