"""Building, reading, energies and sweeps, as ratios to one pass over the unary array.

    python benchmarks/foundation.py

prints the table kept in benchmarks/foundation.md.  Everything runs on one thread, best of several repeats; the
ratios compare things measured in the same run, so they mean something on a busy machine too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tightmap as tm
from tightmap.moves.coordinate_descent import descend

DATA = Path(os.environ.get("TIGHTMAP_DATA", Path(__file__).parents[1].parent / "shared" / "data"))


def best(call: Callable[[], object], repeats: int = 7) -> float:
    """Seconds of the fastest of several calls."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def million_edges() -> tuple[int, float]:
    """(edges, seconds) to build and canonicalise a Potts grid of about a million edges."""
    unaries = np.random.default_rng(0).random((710 * 710, 4))

    def build() -> None:
        model = tm.Model.grid(710, 710, 4)
        model.add_unaries(unaries)
        edges = model.edges()
        model.add_potts(edges, np.ones(len(edges)))
        model.graph()

    return 2 * 710 * 709, best(build, 3)


def main() -> None:
    edges, seconds = million_edges()
    print(f"Potts grid, {edges} edges: built and canonicalised in {seconds:.2f} s (target 2 s)")
    ring = DATA / "inpainting" / "n4-triplepoint4-plain-ring.h5"
    teddy = DATA / "stereo" / "teddy-gm.npz"
    if not ring.exists() or not teddy.exists():
        print(f"the real models are not in TIGHTMAP_DATA ({DATA})")
        return
    begin = time.perf_counter()
    tm.read(ring)
    first = time.perf_counter() - begin
    again = best(lambda: tm.read(ring))
    print(f"ring .h5: first read {first:.3f} s, best {again:.3f} s (target 0.5 s)")
    model = tm.read(teddy)
    graph = model.graph()
    unaries = model.unaries.reshape(graph.n, -1)
    labels = unaries.argmin(axis=1)
    order = np.arange(graph.n)

    def sweep() -> None:
        descend(graph.arrays, labels.copy(), np.ones(graph.n, dtype=np.uint8), order, 0, graph.n, np.inf)

    one = best(lambda: unaries.min(axis=1))
    print(f"teddy: one pass over the unaries (NumPy min) {1e3 * one:.1f} ms")
    print(f"teddy: energy of a labelling {best(lambda: model.energy(labels)) / one:.2f} passes (target 1)")
    sweep()
    print(f"teddy: BCD sweep, all variables dirty {best(sweep) / one:.2f} passes (target 6)")
    base = unaries.nbytes + graph.m * 24  # two indices and a weight per edge
    print(f"teddy: graph {graph.nbytes / base:.2f} times the bytes of unaries and edges (target 1.3)")


if __name__ == "__main__":
    main()
