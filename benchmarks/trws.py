"""TRW-S on the real models: quality within a time limit, and milliseconds per iteration.

    python benchmarks/trws.py [--threads N] [--only NAME ...] [--speed] [--quality] [--sparse]

Prints, per model: energy, certified bound, status, seconds, iterations, threads; and per stereo model the time of one
iteration (forward and backward, without and with rounding; the certificate on top), best of five, for one thread and
all of them.  Models come from TIGHTMAP_DATA (default ../shared/data).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tightmap as tm
from tightmap.solvers.trws.engines import GeneralMessages, GridMessages, Passes, grid_stencil

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
MODELS = {  # name: file, seconds, energy to reach, bound to reach
    "tsukuba": ("stereo/tsukuba-gm.npz", 20, 369257, 369217.5),
    "venus": ("stereo/venus-gm.npz", 60, 3048387, 3047929.9),
    "teddy": ("stereo/teddy-gm.npz", 60, 1345296, 1337092.2),
    "ring N4": ("inpainting/n4-triplepoint4-plain-ring.h5", 1, 484.590668, 484.59066),
    "inverse N4": ("inpainting/n4-triplepoint4-plain-ring-inverse.h5", 20, np.inf, 411.59),
    "ring N8": ("inpainting/n8-triplepoint4-plain-ring.h5", 20, np.inf, -np.inf),
    "inverse N8": ("inpainting/n8-triplepoint4-plain-ring-inverse.h5", 20, np.inf, 413.20),
    "object detection": ("uai/ObjectDetection_11.uai", 5, np.inf, -np.inf),
    "segmentation": ("uai/Segmentation_11.uai", 5, np.inf, -np.inf),
    "grid UAI": ("uai/Grids_18.uai", 5, np.inf, -np.inf),
    "protein": ("uai/ProteinFolding_11.uai", 5, np.inf, -np.inf),
}
SPEED = {"tsukuba": 12.0, "venus": 18.0, "teddy": 26.0}  # milliseconds per iteration, one thread


def quality(names: list[str], threads: int | None) -> None:
    print(
        f"{'model':17} {'energy':>14} {'bound':>16} {'status':>15} {'s':>7} {'iterations':>10} {'threads':>7}  reached"
    )
    for name in names:
        file, seconds, energy, bound = MODELS[name]
        model = tm.read(DATA / file)
        model.graph()
        tm.solve(model, "trws", max_iterations=17, threads=threads)  # compile
        r = tm.solve(model, "trws", time_limit=seconds, threads=threads)
        reached = r.energy <= energy and r.lower_bound >= bound
        count = threads or os.cpu_count()
        print(
            f"{name:17} {r.energy:14.9g} {r.lower_bound:16.10g} {r.status.name:>15} {r.elapsed:7.2f} "
            f"{r.iterations:10d} {count:7d}  {'yes' if reached else 'NO'}",
            flush=True,
        )


def best_of(
    engine: GridMessages | GeneralMessages,
    rounding: bool,
    certify: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Milliseconds of one iteration, best of five runs of four."""
    best = np.inf
    for _ in range(5):
        begin = clock()
        engine.iterate(4, Passes(rounding, certify))
        best = min(best, clock() - begin)
    return best * 250.0


def speed(names: list[str]) -> None:
    print(
        f"{'model':10} {'threads':>7} {'ms/iteration':>12} {'cpu':>7} {'target':>7} {'+ rounding':>10} "
        f"{'certificate':>11}"
    )
    for name in [n for n in names if n in ("ring N8", "inverse N8")]:
        graph = tm.read(DATA / MODELS[name][0]).graph()
        stencil = grid_stencil(graph)
        assert stencil is not None
        both = {"general": GeneralMessages(graph, np.arange(graph.n), 1)} | {
            f"grid {8 * np.dtype(d).itemsize}": GridMessages(graph, stencil, 1, d) for d in (np.float64, np.float32)
        }
        for which, one in both.items():
            one.iterate(4)
            plain, rounded = (best_of(one, rounding, False) for rounding in (False, True))
            cpu = best_of(one, False, False, time.process_time)
            extra = 4.0 * (best_of(one, False, True) - plain) if which != "general" else 0.0
            print(
                f"{name:10} {1:7d} {plain:12.2f} {cpu:7.2f} {np.nan:7.1f} {rounded:10.2f} {extra:11.2f}  {which}",
                flush=True,
            )
    for name in [n for n in names if n in SPEED]:
        graph = tm.read(DATA / MODELS[name][0]).graph()
        stencil = grid_stencil(graph)
        assert stencil is not None
        for threads in sorted({1, os.cpu_count() or 1}):
            engine = GridMessages(graph, stencil, threads, np.float32)
            engine.iterate(4)
            plain = best_of(engine, False, False)
            cpu = best_of(engine, False, False, time.process_time)  # all threads; on a busy machine the fairer figure
            rounded = best_of(engine, True, False)
            certified = 4.0 * (best_of(engine, False, True) - plain)
            print(
                f"{name:10} {threads:7d} {plain:12.2f} {cpu:7.2f} {SPEED[name] if threads == 1 else np.nan:7.1f} "
                f"{rounded:10.2f} {certified:11.2f}",
                flush=True,
            )


def sparse() -> None:
    """Random graphs of six neighbours per variable: how much the time of a visit grows with the graph."""
    print(f"{'labels':>6} {'tables':>7} {'ns per visit, 10^4':>18} {'10^5':>8} {'factor':>7}")
    for labels, dense in ((4, False), (5, False), (3, True), (8, True)):
        times = []
        for n in (10_000, 100_000):
            rng = np.random.default_rng(n)
            model = tm.Model(np.full(n, labels))
            model.add_unaries(rng.random((n, labels)))
            ends = np.sort(rng.integers(0, n, (3 * n, 2)), axis=1)
            ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
            if dense:
                model.add_factors(ends, rng.random((len(ends), labels, labels)))
            else:
                model.add_potts(ends, rng.random(len(ends)))
            engine = GeneralMessages(model.graph(), np.arange(n), 1)
            engine.iterate(4)
            times.append(best_of(engine, False, False, time.process_time) * 1e6 / (2 * n))
        name = "dense" if dense else "Potts"
        print(f"{labels:6d} {name:>7} {times[0]:18.0f} {times[1]:8.0f} {times[1] / times[0]:7.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--speed", action="store_true", help="only the times per iteration")
    parser.add_argument("--sparse", action="store_true", help="only the times per visit on random graphs")
    parser.add_argument("--quality", action="store_true", help="only energies and bounds")
    arguments = parser.parse_args()
    if arguments.sparse:
        sparse()
        return
    if not DATA.exists():
        sys.exit(f"no models: set TIGHTMAP_DATA (looked at {DATA})")
    if not arguments.quality:
        speed(arguments.only)
    if not arguments.speed:
        quality(arguments.only, arguments.threads)


if __name__ == "__main__":
    main()
