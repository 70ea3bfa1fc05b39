"""How far the kernels are from what this machine can do: bytes and operations per message, and the share reached.

    python benchmarks/kernels.py [--only NAME ...]

The machine is measured in the same process and on the same thread: bytes per second of a loop that reads two arrays
and writes one (for working sets from the second cache to main memory), and additions and minima per second on numbers
that are in registers.  A message of b bytes and o operations then takes at least

    t = max(b / bandwidth(working set), o / operations per second)

and the share is t over the time that was measured.  Bytes and operations are counted from the code (limits.md has the
formulas); index lists and weights are among the bytes, shuffles and address arithmetic are not among the operations, so
that a share of one cannot be reached.  Times are processor time of one thread, best of many.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

import tightmap as tm
from tightmap.graph.stencil import find_stencil
from tightmap.moves.context import Context
from tightmap.solvers.admm.engine import Step
from tightmap.solvers.admm.grid import GridSplitting
from tightmap.solvers.regions.regions import build_regions
from tightmap.solvers.regions.srmp import SrmpRun
from tightmap.solvers.trws.engines import GeneralMessages, GridMessages, Passes, grid_stencil

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[2] / "shared" / "data"))
SIZES = [2**k for k in range(17, 29)]  # bytes of the working sets
PLAIN = Passes(rounding=False, certify=False)
ROUNDS = 20_000  # repetitions in the measure of arithmetic


class Row(NamedTuple):
    """One kernel on one model: messages of an iteration, bytes and operations of a message, and the iteration."""

    kernel: str
    model: str
    messages: int
    moved: float
    operations: float
    itemsize: int
    working: float  # bytes that an iteration goes through
    iterate: Callable[[int], object]


@numba.njit(fastmath={"contract", "reassoc", "nsz"})
def _add_arrays(a, b, c, repeat):
    for _ in range(repeat):
        for i in range(len(a)):
            c[i] = a[i] + b[i]


@numba.njit(fastmath={"contract", "reassoc", "nsz"})
def _add_and_minimum(a, step, low, rounds):
    """``rounds`` times eight additions and eight minima on each number, which is in a register meanwhile."""
    for _ in range(rounds):
        for i in range(len(a)):
            value = a[i]
            value = min(value + step, low)
            value = min(value + step, low)
            value = min(value + step, low)
            value = min(value + step, low)
            value = min(value + step, low)
            value = min(value + step, low)
            value = min(value + step, low)
            a[i] = min(value + step, low)


def best_of(run: Callable[[], object], times: int = 7) -> float:
    best = np.inf
    for _ in range(times):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    return best


def bandwidth() -> dict[int, float]:
    """Bytes per second, read and written together, for working sets of several sizes."""
    found = {}
    for size in SIZES:
        a, b, c = (np.ones(size // 24) for _ in range(3))
        repeat = max(1, 2**28 // size)
        _add_arrays(a, b, c, 1)
        found[size] = 24.0 * len(a) * repeat / best_of(lambda a=a, b=b, c=c, r=repeat: _add_arrays(a, b, c, r), 5)
    return found


def arithmetic() -> dict[int, float]:
    """Additions and minima per second, for numbers of four and eight bytes, in the first cache."""
    found = {}
    for kind in (np.float32, np.float64):
        values = np.ones(128, kind)
        _add_and_minimum(values, kind(1e-6), kind(2.0), 1)
        rounds = ROUNDS
        seconds = best_of(lambda v=values, k=kind, r=rounds: _add_and_minimum(v, k(1e-6), k(2.0), r))
        found[np.dtype(kind).itemsize] = 16.0 * len(values) * rounds / seconds
    return found


def at(size: float, measured: dict[int, float]) -> float:
    """The bandwidth of a working set, between the sizes that were measured."""
    return float(np.interp(np.log2(size), np.log2(list(measured)), list(measured.values())))


def grid_trws(name: str, model: tm.Model, kind: type, stored: int) -> Row:
    """``stored`` bytes for each unary cost."""
    graph = model.graph()
    stencil = grid_stencil(graph)
    assert stencil is not None
    engine = GridMessages(graph, stencil, 1, kind)
    b, labels, steps = np.dtype(kind).itemsize, graph.max_labels, len(stencil.displacements)
    messages = 2 * graph.m
    # a visit reads the messages of all its neighbours and its unary costs and writes half of the messages;
    # those of the pixel before are at hand
    moved = ((2 * steps - 1) * b * labels + stored * labels + 4 * steps + 8 * steps) / steps + b * labels
    working = float(messages * b * labels + stored * len(graph.unary) + 8 * graph.m)
    return Row("trws, grid", name, messages, moved, 7.0 * labels + 4.0, b, working, lambda k: engine.iterate(k, PLAIN))


def general_trws(name: str, model: tm.Model, table: int) -> Row:
    """``table`` bytes of each factor's own table; 0 for Potts."""
    graph = model.graph()
    engine = GeneralMessages(graph, np.arange(graph.n), 1)
    labels = graph.max_labels
    messages = 2 * graph.m
    operations = 12.0 * labels + 12.0 if table == 0 else 2.0 * labels**2 + 12.0 * labels
    moved = 32.0 * labels + 25.0 + table
    working = float(messages * 8 * labels + (25 + table) * graph.m + 8 * len(graph.unary))
    return Row("trws, general", name, messages, moved, operations, 8, working, lambda k: engine.iterate(k, PLAIN))


def srmp(name: str, model: tm.Model, moved: float, operations: float) -> Row:
    run = SrmpRun(build_regions(model.graph(), "full", []), Context())

    def iterate(count: int) -> None:
        for _ in range(count):
            list(run.iteration(False, False))

    messages = 2 * int(run.regions.entries // model.graph().max_labels)
    return Row("srmp", name, messages, moved, operations, 8, messages * moved / 2.0, iterate)


def admm(name: str, model: tm.Model) -> Row:
    """A "message" is a pixel here: three iterates and its costs are read, the iterates are written."""
    graph = model.graph()
    stencil = find_stencil(graph)
    assert stencil is not None
    engine = GridSplitting(stencil, graph.arrays.unary, 1e-8, np.float32, 1, False)
    engine.reset(None)
    rho = 0.04 * engine.kappa
    labels, steps = graph.max_labels, len(stencil.displacements)
    moved = 28.0 * labels + 8.0 * steps
    # neighbours are added up (2 per step), two projections of about five passes, multipliers
    operations = labels * (4.0 * steps + 2 * 5 * 2 + 6.0)
    return Row(
        "admm, grid", name, graph.n, moved, operations, 4, graph.n * moved, lambda k: engine.iterate(k, Step(rho, 1.0))
    )


def potts_image(side: int, labels: int, neighbours: int) -> tm.Model:
    rng = np.random.default_rng(0)
    model = tm.Model.grid(side, side, labels)
    model.add_unaries(rng.random((side * side, labels), dtype=np.float32))
    model.add_potts(model.edges(neighbours), 0.3)
    return model


def random_graph(n: int, labels: int) -> tm.Model:
    rng = np.random.default_rng(n)
    model = tm.Model(np.full(n, labels))
    model.add_unaries(rng.random((n, labels)))
    ends = np.sort(rng.integers(0, n, (3 * n, 2)), axis=1)
    ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
    model.add_factors(ends, rng.random((len(ends), labels, labels)))
    return model


def rows() -> Iterator[Callable[[], Row]]:
    def data(name: str) -> tm.Model:
        return tm.read(DATA / name)

    inverse4 = "inpainting/n4-triplepoint4-plain-ring-inverse.h5"
    inverse8 = "inpainting/n8-triplepoint4-plain-ring-inverse.h5"
    yield lambda: grid_trws("inverse N4, float32", data(inverse4), np.float32, 4)
    yield lambda: grid_trws("inverse N8, float32", data(inverse8), np.float32, 4)
    yield lambda: grid_trws("inverse N8, float64", data(inverse8), np.float64, 8)
    yield lambda: grid_trws("teddy, Potts of 60 labels", data("stereo/teddy-gm.npz"), np.float32, 2)
    yield lambda: grid_trws("1000 x 1000 x 5, Potts, N8", potts_image(1000, 5, 8), np.float32, 4)
    yield lambda: general_trws("inverse N8", data(inverse8), 0)
    yield lambda: general_trws("10^4 variables, 8 labels, tables", random_graph(10_000, 8), 512)
    yield lambda: general_trws("10^5 variables, 8 labels, tables", random_graph(100_000, 8), 512)
    yield lambda: srmp("ring N4", data("inpainting/n4-triplepoint4-plain-ring.h5"), 40 * 4 + 42, 8 * 4 + 3)
    yield lambda: srmp("Promedas_11, triples of two labels", data("uai/Promedas_11.uai"), 202, 50)
    yield lambda: admm("tsukuba", data("stereo/tsukuba-gm.npz"))
    yield lambda: admm("teddy", data("stereo/teddy-gm.npz"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", default=[], help="rows whose model contains one of these")
    chosen = parser.parse_args()
    if not DATA.exists():
        sys.exit(f"no models: set TIGHTMAP_DATA (looked at {DATA})")
    speeds, peak = bandwidth(), arithmetic()
    print("working set, GB/s: " + ", ".join(f"{size >> 10} KiB {speed / 1e9:.0f}" for size, speed in speeds.items()))
    print(f"additions and minima, 10^9/s: float32 {peak[4] / 1e9:.0f}, float64 {peak[8] / 1e9:.0f}\n")
    print("| kernel | model | messages | ms | ns per message | bytes | operations | GB/s | 10^9 op/s | share | by |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    for make in rows():
        row = make()
        if chosen.only and not any(word in row.model for word in chosen.only):
            continue
        row.iterate(4)
        count = max(1, int(0.05 / best_of(lambda r=row: r.iterate(1), 2)))
        seconds = best_of(lambda r=row, k=count: r.iterate(k)) / count / row.messages
        by_memory = row.moved / at(row.working, speeds)
        by_arithmetic = row.operations / peak[row.itemsize]
        print(
            f"| {row.kernel} | {row.model} | {row.messages} | {1e3 * seconds * row.messages:.2f} | {1e9 * seconds:.1f} "
            f"| {row.moved:.0f} | {row.operations:.0f} | {row.moved / seconds / 1e9:.1f} "
            f"| {row.operations / seconds / 1e9:.1f} | {max(by_memory, by_arithmetic) / seconds:.2f} "
            f"| {'memory' if by_memory > by_arithmetic else 'arithmetic'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
