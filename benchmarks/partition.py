"""Partitioned ADMM: seconds per iteration for numbers of workers beside threads, in one run, and one digest for all.

    python benchmarks/partition.py --size 2000 --labels 5 --workers 1 2 --iterations 100 [--ray]
    python benchmarks/partition.py --table --workers 1 2 3 4

Times are of the iterations alone: start-up, compilation and the first exchange are left out.  ``--table`` prints the
digests of the labels of whole runs instead, on models of odd sizes: one line a model, one column for every number of
workers; the exit code says whether each line has one digest.
"""

from __future__ import annotations

import argparse
import sys
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


# height, width, labels, neighbours: shapes that no tile, worker or SIMD register divides
MODELS = (
    (67, 41, 2, 4), (97, 33, 3, 8), (131, 59, 4, 4), (101, 77, 5, 8),
    (163, 29, 7, 4), (89, 53, 8, 8), (115, 47, 11, 4), (71, 39, 16, 8),
)  # fmt: skip


def table(workers: list[int], engine: str) -> bool:
    """Digests of labels, energies and bounds by number of workers; whether they agree."""
    print("| model | neighbours | " + " | ".join(f"{count} workers" for count in workers) + " | energy | bound |")
    print("|---|---|" + "---|" * len(workers) + "---|---|")
    agree = True
    for height, width, labels, neighbours in MODELS:
        unary = np.random.default_rng(labels).random((height, width, labels), dtype=np.float32)
        costs_of = (0.0, 1.0) if labels < 7 else (0.0, 1.0, 2.0, 2.5)
        found = [
            tm.scale.solve_rows(
                unary, 0.2, table=costs_of, neighbours=neighbours, tile=16, growth=1.05, workers=count, engine=engine
            )
            for count in workers
        ]
        first = found[0]
        same = len({(r.digest, r.energy, r.lower_bound) for r in found}) == 1
        agree = agree and same
        print(
            f"| {height} x {width} x {labels} | {neighbours} | " + " | ".join(r.digest for r in found)
            + f" | {first.energy:.3f} | {first.lower_bound:.3f} |" + ("" if same else " differ"),
            flush=True,
        )  # fmt: skip
    return agree


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--labels", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--iterations", type=int, default=40, help="a multiple of ten")
    parser.add_argument("--ray", action="store_true", help="actors as well")
    parser.add_argument("--table", action="store_true", help="digests of the labels of whole runs, no times")
    options = parser.parse_args()
    if options.table:
        sys.exit(0 if all([table(options.workers, e) for e in (["processes"] + ["ray"] * options.ray)]) else 1)
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
