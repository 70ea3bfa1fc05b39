"""Grids larger than memory: costs are read some rows at a time, labels go to a file, and a bound comes along.

    result = tightmap.scale.solve_rows("unaries.npy", weights=0.5, labels="labels.npy", memory=2e9)

The run is that of ``solve(model, "admm", workers=N)``: everything is defined on tiles of rows, and the labels do not
depend on the workers, the engine, the memory, or on being cut off and resumed (docs/scale.md).
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tightmap.driver import whole
from tightmap.energy.certificate import UNIT
from tightmap.errors import ModelError, OptionError
from tightmap.runtime.interruption import unfinished
from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.tiles.partitioned import make_folder
from tightmap.solvers.admm.tiles.programme import DEPTH, Plan, Position, Run, check_model
from tightmap.solvers.admm.tiles.rows import TILE, ByFunction, GridRows, Source, source_of

__all__ = ["ByFunction", "RowsResult", "solve_rows"]
DEEP = 25  # iterations per visit of rows that are read from files each time


@dataclass(frozen=True, eq=False)
class RowsResult:
    """What a run found: labels (height, width), in memory or mapped from the file they were written to."""

    labels: npt.NDArray[np.integer]
    energy: float
    lower_bound: float  # no labelling has a lower energy; -inf without rounds of the bound
    iterations: int
    elapsed: float
    digest: str  # a checksum of the labels, to compare runs

    @property
    def gap(self) -> float:
        return max(0.0, self.energy - self.lower_bound)


def solve_rows(
    unaries: Any,
    weights: float | Sequence[float] | Any = 1.0,
    *,
    table: Sequence[float] = (0.0, 1.0),
    neighbours: int = 4,
    shape: tuple[int, int, int] | None = None,
    workers: int = 1,
    engine: str = "processes",
    checkpoint: str | os.PathLike[str] | None = None,
    memory: float | None = None,
    labels: str | os.PathLike[str] | None = None,
    tile: int = TILE,
    restarts: int = 1,
    growth: float = 1.01,
    rounds: int = 20,
    seed: int = 0,
    progress: Callable[[Position], Any] | None = None,
) -> RowsResult:
    """Minimise the energy of a grid whose rows are read when they are needed.

    Parameters
    ----------
    unaries : (height, width, labels) costs: an array, an np.memmap, a path (.npy, .zarr, FILE.h5:DATASET), or a
        function of (first row, last row), for which ``shape`` is needed; for several workers a function of a module.
    weights : of all edges, of the edges of every direction (right, down, and the diagonals), or by edge: an array or
        source (height, directions, width) of weights at the left, upper end.
    table : cost by difference of labels, which stays at its last value: (0, 1) is Potts, (0, 1, 2) truncated linear.
    neighbours : 4 or 8.
    workers, engine : processes of this machine, or actors of "ray".
    checkpoint : folder for the iterates; a run that was cut off goes on from there.
    memory : bytes for the rows that a worker has at a time; the iterates are in files then.
    labels : .npy file to write; otherwise the labels are returned in memory.
    tile : rows of a tile; the labels depend on it a little, and on nothing else here.
    restarts, growth, seed : cycles, the growth of the penalty in each, and the seed of its noise.
    rounds : of the lower bound, 0 for none.
    progress : called after every step with the position of the run.
    """
    begin = time.perf_counter()
    tile, workers = _count("tile", tile, 2), _count("workers", workers, 1)
    restarts, rounds, seed = _count("restarts", restarts, 1), _count("rounds", rounds, 0), _count("seed", seed, 0)
    growth = _number("growth", growth, 1.0)
    memory = None if memory is None else _number("memory", memory, 0.0)
    if progress is not None and not callable(progress):
        raise OptionError(f"progress must be a function of one argument, got {type(progress).__name__}")
    source = source_of(unaries, shape)
    model = _model(source, weights, table, neighbours, tile)
    check_model(model)
    target = None if labels is None else _target(labels, model)
    temporary, file = None, None
    if checkpoint is None and memory is not None and engine != "ray":
        temporary = tempfile.mkdtemp(prefix="tightmap-")
    folder = temporary if checkpoint is None else make_folder(os.fspath(checkpoint))
    depth = DEEP if memory is not None and tile >= 4 * DEEP else DEPTH
    cycles = tuple(Cycle(growth=growth, relax=(1.0, 1.6)[k % 2]) for k in range(restarts))
    try:
        visit = None if memory is None else _tiles_within(model, memory, depth)
        plan = Plan(workers, engine, folder, visit, depth, cycles, bound_rounds=rounds, seed=seed)
        file = None if target is None else _LabelFile(target, model)  # what cannot be written is known before the run
        run = Run(model, plan, progress)
        try:
            while not run.done:
                run.advance()
            found, digest = _collect(run, file)
        finally:
            run.engine.close()
    finally:
        if file is not None:
            file.close()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    p = run.position
    bound = p.bound - p.error - 2.0 * UNIT * abs(p.bound) if math.isfinite(p.bound) else -math.inf
    return RowsResult(found, p.energy, bound, p.total, time.perf_counter() - begin, digest)


def _count(name: str, value: Any, least: int) -> int:
    number = whole(name, value, least)
    if number is None:
        raise OptionError(f"{name} must be a whole number of at least {least}, got None")
    return number


def _number(name: str, value: Any, least: float) -> float:
    wrong = isinstance(value, bool | str | bytes) or np.ndim(value) > 0
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        wrong = True
    if wrong or not least <= number < math.inf:
        raise OptionError(f"{name} must be a number of at least {least:g}, got {value!r}")
    return number


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    try:
        if isinstance(values, str | bytes):
            raise TypeError("a text")
        return tuple(float(v) for v in values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{name}: expected numbers ({error})") from None


def _model(source: Source, weights: Any, table: Any, neighbours: int, tile: int) -> GridRows:
    if not isinstance(neighbours, int | np.integer) or neighbours not in (4, 8):
        raise OptionError(f"neighbours must be 4 or 8, got {neighbours!r}")
    directions = neighbours // 2
    given: tuple[float, ...] | Source
    if isinstance(weights, str | os.PathLike) or hasattr(weights, "read"):
        given = source_of(weights)
    elif isinstance(weights, Sequence):
        given = _numbers("weights", weights)
    elif np.ndim(weights) == 0 and not callable(weights):
        given = _numbers("weights", [weights]) * directions
    else:
        given = source_of(weights)
    costs = _numbers("table", table)
    if not costs:
        raise ModelError("table: expected the costs of differences of labels, got none")
    size = source.shape[2] if len(source.shape) == 3 else len(costs)
    profile = (costs + (costs[-1],) * size)[:size]
    model = GridRows(source, profile, given, tile)
    if model.directions != directions:
        raise OptionError(f"{neighbours} neighbours need weights of {directions} directions, got {model.directions}")
    return model


def _tiles_within(model: GridRows, memory: float, depth: int) -> int:
    """Tiles whose rows, with what their sweeps and bounds need, fit into so many bytes."""
    k, s = model.directions, model.labels
    sweep = 16 * s + 12 * k + 2  # unary and three iterates in single precision, weights twice
    bound = 8 * s * (2 * k + 1) + 8 * k  # shares, messages and unaries in double precision, of one tile at a time
    tall = model.tile + (model.height % model.tile if model.height > model.tile else 0)
    least = max(sweep * (tall + 4 * depth), bound * tall) * model.width
    if least > memory:
        raise OptionError(
            f"memory: a tile of {model.tile} rows needs {least / 1e6:.0f} MB and {memory / 1e6:.0f} MB are allowed; "
            "choose a smaller tile"
        )
    return max(1, int((memory / (sweep * model.width) - 4 * depth - tall) // model.tile) + 1)


def _target(path: Any, model: GridRows) -> str:
    """The file for the labels, behind all links; not one that the run reads."""
    if not isinstance(path, str | os.PathLike) or os.fspath(path) in ("", b""):
        raise OptionError(f"labels must be the path of a file, got {path!r}")
    target = os.path.realpath(os.fsdecode(path))
    for source in (model.unary, model.weights):
        read = getattr(source, "path", None)
        if read is not None and os.path.realpath(read) == target:
            raise OptionError(f"labels: {os.fsdecode(path)} is what the run reads; choose another file")
    if os.path.exists(target) and not os.path.isfile(target):
        raise OptionError(f"labels: {os.fsdecode(path)} is no plain file; choose another one")
    return target


class _LabelFile:
    """A file beside the target with room for all labels, which takes its place when they are there."""

    def __init__(self, target: str, model: GridRows) -> None:
        self.target = target
        self.place = os.path.join(os.path.dirname(target), f".tightmap-{secrets.token_hex(8)}.tmp")
        unfinished.add(self.place)
        try:
            with self._said():
                self.file: IO[bytes] = open(self.place, "xb")  # noqa: SIM115  closed by close()
                kind, shape = np.dtype(model.label_type), (model.height, model.width)
                head = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(self.file, head)
                self._reserve(kind.itemsize * shape[0] * shape[1])
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OptionError(f"labels: {self.target} cannot be written ({error.strerror or error})") from None

    def _reserve(self, size: int) -> None:
        """Room on the disk for what is to come, so that it is missing before the run and not after it."""
        self.file.flush()
        if not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(self.file.fileno(), self.file.tell(), size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
                raise  # other errors: the file system cannot say

    def write(self, rows: npt.NDArray[np.integer]) -> None:
        with self._said():
            self.file.write(rows.data)

    def finish(self) -> npt.NDArray[np.integer]:
        """The labels under their own name, mapped."""
        with self._said():
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
            os.replace(self.place, self.target)
        return np.lib.format.open_memmap(self.target, "r+")

    def close(self) -> None:
        if hasattr(self, "file"):
            with suppress(OSError):  # what could not be written has been said
                self.file.close()
        with suppress(FileNotFoundError):
            os.unlink(self.place)
        unfinished.discard(self.place)


def _collect(run: Run, file: _LabelFile | None) -> tuple[npt.NDArray[np.integer], str]:
    """The labels, tile by tile, in memory or in the file."""
    model, name = run.model, run.position.best
    out: npt.NDArray[np.integer] = np.empty((model.height if file is None else 0, model.width), model.label_type)
    code = 0
    for tile in range(model.tiles):
        lo, hi = model.rows_of(tile, tile + 1)
        rows: npt.NDArray[np.integer] = np.ascontiguousarray(run.engine.read(name, lo, hi), model.label_type)
        if file is None:
            out[lo:hi] = rows
        else:
            file.write(rows)
        code = zlib.crc32(rows.data, code)
    return out if file is None else file.finish(), f"{code:08x}"
