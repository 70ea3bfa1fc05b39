"""ADMM on the real models: energies with default options within a time limit, and milliseconds per iteration.

    python benchmarks/admm.py --quality [--threads N] [--only NAME ...]      the quality table
    python benchmarks/admm.py --speed                                        the speed table
    python benchmarks/admm.py --memory                                       what a run of ten seconds allocates
    python benchmarks/admm.py --families                                     other families, five seconds each

Compilation is done before the clock starts.  Speeds are the best of five; one thread is measured in CPU time, so that a
busy machine disturbs it less.  Models come from TIGHTMAP_DATA (default ../shared/data).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numba
import numpy as np

import tightmap as tm
from tightmap.driver import Info
from tightmap.factors.kernels import workspace
from tightmap.graph.stencil import find_stencil
from tightmap.solvers.admm.engine import Splitting, Step
from tightmap.solvers.admm.grid import GridSplitting
from tightmap.solvers.admm.updates import Form, linear_term

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
QUALITY = {  # name: file, seconds, energy to reach, added to the energy
    "ring N4": ("inpainting/n4-triplepoint4-plain-ring.h5", 10, 484.60, 0.0),
    "inverse N4": ("inpainting/n4-triplepoint4-plain-ring-inverse.h5", 10, 424.12, 0.0),
    "ring N8": ("inpainting/n8-triplepoint4-plain-ring.h5", 10, 495.20, 0.0),
    "inverse N8": ("inpainting/n8-triplepoint4-plain-ring-inverse.h5", 10, 434.32, 0.0),
    "tsukuba": ("stereo/tsukuba-gm.npz", 20, 375954, 0.0),
    "venus": ("stereo/venus-gm.npz", 90, 3123334, 0.0),
    "teddy": ("stereo/teddy-gm.npz", 60, 1373030, 0.0),
    "matching0": ("matching/matching0.dd", 5, 19.363, 190.0),
}
FAMILIES = [
    "uai/Grids_18.uai", "uai/ObjectDetection_11.uai", "uai/Promedas_11.uai", "uai/ProteinFolding_11.uai",
    "uai/Segmentation_11.uai", "uai/Segmentation_12.uai", "uai/wcsp_11.uai", "wcsp/celar6sub0.wcsp", "wcsp/zebra.wcsp",
    "wcsp/404.wcsp.xz", "wcsp/1aho.cfn.gz", "wcsp/CELAR6SUB1.cfn.gz", "wcsp/bqp100-1.qpbo", "maxcut/G1.txt",
    "maxcut/G11.txt",
]  # fmt: skip
SPEED = {  # name: float32 and float64 milliseconds to reach, one thread
    "ring N4": (0.15, 0.3), "ring N8": (0.15, 0.3), "tsukuba": (10.0, None), "venus": (18.0, None),
    "teddy": (40.0, None),
}  # fmt: skip


def warm(model: tm.Model, threads: int | None) -> None:
    """Compile everything that a run of this model needs."""
    tm.solve(model, "admm", max_iterations=60, threads=threads)
    tm.solve(model, "admm", max_iterations=60, threads=threads, multiscale=False)


def quality(names: list[str], threads: int | None) -> None:
    print(f"{'model':12} {'energy':>14} {'reach':>12} {'s':>7} {'hit after':>9} {'iterations':>10} {'threads':>7}")
    for name in names:
        file, seconds, goal, shift = QUALITY[name]
        model = tm.read(DATA / file)
        model.graph()
        warm(model, threads)
        hit: list[float] = []

        def watch(info: Info, goal: float = goal, shift: float = shift, hit: list[float] = hit) -> bool:
            if not hit and info.energy + shift <= goal + 1e-9:
                hit.append(info.elapsed)
            return False

        r = tm.solve(model, "admm", time_limit=seconds, threads=threads, callback=watch)
        when = f"{hit[0]:9.2f}" if hit else "       NO"
        print(
            f"{name:12} {r.energy + shift:14.9g} {goal:12.9g} {r.elapsed:7.2f} {when} {r.iterations:10d} "
            f"{threads or os.cpu_count():7d}",
            flush=True,
        )


def families(threads: int | None) -> None:
    print(f"{'model':28} {'energy':>16} {'known':>16} {'s':>7} {'iterations':>10}")
    known = {
        "celar6sub0": 159,
        "zebra": 0,
        "404": 114,
        "1aho": -33.72992,
        "CELAR6SUB1": 2669,
        "G1": -11624,
        "G11": -564,
    }
    for file in FAMILIES:
        path = DATA / file
        evidence = path.with_name(path.name + ".evid")
        model = tm.read(path)
        if evidence.exists():
            model = tm.read(path, evidence=evidence)
        warm(model, threads)
        r = tm.solve(model, "admm", time_limit=5.0, threads=threads)
        reference = known.get(path.name.split(".")[0], float("nan"))
        print(f"{file:28} {r.energy:16.9g} {reference:16.9g} {r.elapsed:7.2f} {r.iterations:10d}", flush=True)


def milliseconds(engine: Splitting, rho: float, count: int, threads: int) -> float:
    """Per iteration, full sweeps, best of five."""
    clock = time.process_time if threads == 1 else time.perf_counter
    engine.reset(None)
    engine.iterate(5, Step(rho, 1.0))
    best = np.inf
    for _ in range(5):
        begin = clock()
        engine.iterate(count, Step(rho, 1.0))
        best = min(best, (clock() - begin) / count)
    return 1e3 * best


def copy_bandwidth() -> float:
    """Bytes per second of a large copy, read plus write."""
    a = np.zeros(20_000_000, np.float32)
    b = np.empty_like(a)
    best = np.inf
    for _ in range(7):
        begin = time.perf_counter()
        b[:] = a
        best = min(best, time.perf_counter() - begin)
    return 2 * a.nbytes / best


def speed() -> None:
    bandwidth = copy_bandwidth()
    print(f"copy bandwidth {bandwidth / 1e9:.1f} GB/s; a sweep moves 7 arrays (reads x1 x2 y u, writes x1 x2 y)")
    print(f"{'model':10} {'type':8} {'threads':>7} {'ms':>8} {'reach':>6} {'of copy bandwidth':>18}")
    for name, goals in SPEED.items():
        graph = tm.read(DATA / QUALITY[name][0]).graph()
        stencil = find_stencil(graph)
        assert stencil is not None
        for dtype, goal in zip((np.float32, np.float64), goals, strict=True):
            for threads in (1, 2):
                engine = GridSplitting(stencil, graph.arrays.unary, 1e-8, dtype, threads, False)
                if len(engine.strips) - 1 < threads:
                    continue
                ms = milliseconds(engine, 0.04 * engine.kappa, 5 if graph.n > 50_000 else 100, threads)
                moved = 7 * engine.plan.unary.nbytes / (1e-3 * ms)
                reach = "" if goal is None or threads > 1 else f"{goal:6.2f}"
                print(
                    f"{name:10} {dtype.__name__:8} {threads:7d} {ms:8.3f} {reach:>6} {moved / bandwidth:18.2f}",
                    flush=True,
                )
    cached()
    second_difference()


def memory() -> None:
    """Largest amount that a run holds, over the size of copies, multipliers and unaries.

    The first number counts what NumPy allocates, the second the pages that the process came to use beyond those before
    (with what compiled code allocates for itself, and what the allocator does not give back).
    """
    for name in ("tsukuba", "venus", "teddy"):
        model = tm.read(DATA / QUALITY[name][0])
        graph = model.graph()
        warm(model, None)
        unit = 4 * 4 * len(graph.arrays.unary)  # two copies, multipliers and unaries in float32
        for what, options in (("iterations and rounding", {"polish": False, "multiscale": False}), ("default", {})):
            tm.solve(model, "admm", time_limit=3.0, **options)  # kernels are read from disk once, not in the run below
            tracemalloc.start()
            r = tm.solve(model, "admm", time_limit=10.0, **options)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            del r
            pages = resident(partial(tm.solve, model, "admm", time_limit=10.0, **options))
            shares = f"{peak / unit:5.3f} x {unit / 1e6:.0f} MB (reach 1.2), pages {pages / unit:5.3f} x"
            print(f"{name:10} {what:24} {shares}", flush=True)


def resident(run: Callable[[], object]) -> float:
    """Bytes by which the pages of this process grow during a call, at most; nan where the system does not say."""

    def high_water() -> int:
        line = next(s for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmHWM"))
        return 1024 * int(line.split()[1])

    try:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what earlier runs freed is given back
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the high-water mark starts again
        before = high_water()
        run()
        return high_water() - before
    except (OSError, StopIteration, AttributeError):
        return float("nan")


def cached() -> None:
    """How much the cache saves at the end of a run."""
    graph = tm.read(DATA / QUALITY["tsukuba"][0]).graph()
    stencil = find_stencil(graph)
    assert stencil is not None
    engine = GridSplitting(stencil, graph.arrays.unary, 1e-8, np.float32, 1, True)
    engine.reset(None)
    rho = 0.03 * engine.kappa
    for _ in range(70):
        engine.iterate(10, Step(rho, 1.0))
        rho *= 1.003**10
    times = {}
    for cache in (True, False):
        engine.cached = cache
        begin = time.process_time()
        _, active = engine.iterate(50, Step(rho, 1.0))
        times[cache] = (time.process_time() - begin) / 50
        if cache:
            print(f"tsukuba after 700 iterations: {100 * active:.1f} % of the tiles computed, ", end="")
    print(f"{1e3 * times[True]:.2f} ms cached, {1e3 * times[False]:.2f} ms uncached, {times[False] / times[True]:.1f}x")


@numba.njit
def _pull_all(g, form, x, scratch, repeat):
    out = np.empty(64)
    start = np.empty(128, np.int64)
    work = np.empty(scratch)
    for _ in range(repeat):
        for i in range(3):
            linear_term(g, form, x, i, i, out, start, work, np.inf)


PULLS = 200_000


def second_difference() -> None:
    rng = np.random.default_rng(0)
    model = tm.Model([14] * 3)
    model.add_unaries(rng.random((3, 14)))
    model.add_second_difference([[0, 1, 2]], [1.0], rng.random((3, 14)) * 20, 5.0)
    g = model.graph().arrays
    form = Form(3, 0, False, False, False, 1.0)
    x = rng.random(3 * len(g.unary))
    _pull_all(g, form, x, workspace(g), 10)
    best = np.inf
    for _ in range(5):
        begin = time.process_time()
        _pull_all(g, form, x, workspace(g), PULLS)
        best = min(best, time.process_time() - begin)
    print(f"second difference, 14 labels, all three p: {1e6 * best / PULLS:.2f} us per clique (reach 2)")


def main() -> None:
    if not DATA.is_dir():
        sys.exit(f"no models at {DATA}; set TIGHTMAP_DATA")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quality", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--families", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="*", choices=list(QUALITY))
    options = parser.parse_args()
    if options.speed:
        speed()
    if options.memory:
        memory()
    if options.families:
        families(options.threads)
    if options.quality or not (options.speed or options.memory or options.families):
        quality(options.only or list(QUALITY), options.threads)


if __name__ == "__main__":
    main()
