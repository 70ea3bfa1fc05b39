"""Partitioned ADMM: seconds per iteration for numbers of workers beside threads, in one run, and one digest for all.

    python benchmarks/partition.py --size 2000 --labels 5 --workers 1 2 --iterations 100 [--ray]

Times are of the iterations alone: start-up, compilation and the first exchange are left out.
"""

from __future__ import annotations

import argparse
import time
import zlib

import numpy as np

import tightmap as tm
from tightmap.solvers.admm.schedule import Cycle
from tightmap.solvers.admm.tiles.programme import DEPTH, Plan, Run
from tightmap.solvers.admm.tiles.rows import GridRows, source_of


def costs(size: int, labels: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((size, size, labels), dtype=np.float32)


def workers_time(unary: np.ndarray, workers: int, engine: str, iterations: int) -> tuple[float, str]:
    """Seconds per iteration, and a digest of the iterates."""
    profile = (0.0,) + (1.0,) * (unary.shape[2] - 1)
    run = Run(GridRows(source_of(unary), profile, (0.7, 0.7)), Plan(workers, engine, cycles=(Cycle(growth=1.01),)))
    try:
        while run.position.total < DEPTH:  # the workers are awake and have read their rows
            run.advance()
        begin = time.perf_counter()
        while run.position.total < DEPTH + iterations:
            run.advance()
        seconds = (time.perf_counter() - begin) / iterations
        iterates = run.engine.read(f"x1.{run.position.side}", 0, unary.shape[0])
        return seconds, f"{zlib.crc32(np.ascontiguousarray(iterates).tobytes()):08x}"
    finally:
        run.engine.close()


def threads_time(unary: np.ndarray, threads: int, iterations: int) -> float:
    """Of the default engine, by the difference of two runs of the same start."""
    height, width, labels = unary.shape
    model = tm.Model.grid(height, width, labels)
    model.add_unaries(unary.reshape(-1, labels))
    model.add_potts(model.edges(), np.full(len(model.edges()), 0.7))
    model.graph()
    ends = []
    for count in (DEPTH, DEPTH, DEPTH + iterations):  # the first one reads kernels
        begin = time.perf_counter()
        tm.solve(model, "admm", threads=threads, max_iterations=count, multiscale=False, growth=1.01, polish=False)
        ends.append(time.perf_counter() - begin)
    return (ends[2] - ends[1]) / iterations


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--labels", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--iterations", type=int, default=40, help="a multiple of ten")
    parser.add_argument("--ray", action="store_true", help="actors as well")
    options = parser.parse_args()
    unary = costs(options.size, options.labels)
    for engine in ("processes", "ray") if options.ray else ("processes",):
        for workers in options.workers:
            seconds, digest = workers_time(unary, workers, engine, options.iterations)
            print(f"{engine:10} {workers:2} workers  {1e3 * seconds:8.1f} ms per iteration  {digest}", flush=True)
    for threads in options.workers:
        seconds = threads_time(unary, threads, options.iterations)
        print(f"threads    {threads:2}          {1e3 * seconds:8.1f} ms per iteration", flush=True)


if __name__ == "__main__":
    main()
