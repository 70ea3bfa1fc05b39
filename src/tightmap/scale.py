"""Grids larger than memory: costs are read some rows at a time, labels go to a file, and a bound comes along.

    result = tightmap.scale.solve_rows("unaries.npy", weights=0.5, labels="labels.npy", memory=2e9)

The run is that of ``solve(model, "admm", workers=N)``: everything is defined on tiles of rows, and the labels do not
depend on the workers, the engine, the memory, or on being cut off and resumed (docs/scale.md).
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.energy.certificate import UNIT
from tightmap.errors import OptionError
from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.tiles.partitioned import make_folder
from tightmap.solvers.admm.tiles.programme import DEPTH, Plan, Position, Run
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
    source = source_of(unaries, shape)
    model = _model(source, weights, table, neighbours, tile)
    temporary = None
    if checkpoint is None and memory is not None and engine != "ray":
        temporary = tempfile.mkdtemp(prefix="tightmap-")
    folder = temporary if checkpoint is None else make_folder(os.fspath(checkpoint))
    depth = DEEP if memory is not None and tile >= 4 * DEEP else DEPTH
    cycles = tuple(Cycle(growth=growth, relax=(1.0, 1.6)[k % 2]) for k in range(max(1, restarts)))
    try:
        visit = None if memory is None else _tiles_within(model, memory, depth)
        plan = Plan(workers, engine, folder, visit, depth, cycles, bound_rounds=rounds, seed=seed)
        run = Run(model, plan, progress)
        try:
            while not run.done:
                run.advance()
            found, digest = _collect(run, labels)
        finally:
            run.engine.close()
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    p = run.position
    bound = p.bound - p.error - 2.0 * UNIT * abs(p.bound) if math.isfinite(p.bound) else -math.inf
    return RowsResult(found, p.energy, bound, p.total, time.perf_counter() - begin, digest)


def _model(source: Source, weights: Any, table: Sequence[float], neighbours: int, tile: int) -> GridRows:
    if neighbours not in (4, 8):
        raise OptionError(f"neighbours must be 4 or 8, got {neighbours}")
    directions = neighbours // 2
    given: tuple[float, ...] | Source
    if np.ndim(weights) == 0 and not isinstance(weights, str | os.PathLike) and not hasattr(weights, "read"):
        given = (float(weights),) * directions
    elif isinstance(weights, Sequence) and not isinstance(weights, str):
        given = tuple(float(w) for w in weights)
    else:
        given = source_of(weights)
    costs = [float(v) for v in table]
    size = source.shape[2] if len(source.shape) == 3 else len(costs)
    profile = tuple((costs + [costs[-1]] * size)[:size])
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


def _collect(run: Run, path: str | os.PathLike[str] | None) -> tuple[npt.NDArray[np.integer], str]:
    """The labels, tile by tile."""
    model, name = run.model, run.position.best
    shape = (model.height, model.width)
    out: npt.NDArray[np.integer]
    if path is None:
        out = np.empty(shape, model.label_type)
    else:
        out = np.lib.format.open_memmap(os.fspath(path), "w+", model.label_type, shape)
    code = 0
    for tile in range(model.tiles):
        lo, hi = model.rows_of(tile, tile + 1)
        rows = run.engine.read(name, lo, hi)
        out[lo:hi] = rows
        code = zlib.crc32(np.ascontiguousarray(rows).tobytes(), code)
    if isinstance(out, np.memmap):
        out.flush()
    return out, f"{code:08x}"
