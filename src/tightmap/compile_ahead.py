"""Compile the kernels of all methods ahead of time, in several processes.

Numba compiles a kernel when it is first called and keeps it on disk.  Solving small models of every shape with every
method fills that cache at a moment of the user's choice: after an installation, or while an image is built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import numpy as np

from tightmap.errors import ModelError
from tightmap.model.model import Model
from tightmap.runtime.parallel import available

ITERATIONS = 60  # enough for every part of a method to be called at least once


def small_models() -> Iterator[Model]:
    """Grids of the usual tables, pairs on a graph, and factors of every kind of higher order."""
    rng = np.random.default_rng(0)
    for labels, diagonal in ((3, False), (6, True)):
        model = Model.grid(9, 10, labels)
        model.add_unaries(rng.random((90, labels)))
        edges = model.edges(8 if diagonal else 4)
        model.add_potts(edges, np.full(len(edges), 0.5))
        yield model
    model = Model.grid(9, 10, 6)
    model.add_unaries(rng.random((90, 6)))
    model.add_truncated_linear(model.edges(), np.full(len(model.edges()), 0.3), 2.5)
    yield model
    for labels in (2, 4):
        pairs = [[i, j] for i in range(12) for j in range(i + 1, min(12, i + 4))]
        model = Model([labels] * 12)
        model.add_unaries(rng.random((12, labels)))
        model.add_factors(pairs, rng.random((len(pairs), labels, labels)))
        yield model
    model = Model([3] * 12)
    model.add_unaries(rng.random((12, 3)))
    model.add_factors([[i, i + 1, i + 2] for i in range(10)], rng.random((10, 3, 3, 3)))
    model.add_pn_potts([[0, 1, 2, 3], [4, 5, 6, 7]], [0.5, 0.5])
    yield model


def compile_method(method: str) -> float:
    """Seconds that went into compiling what ``method`` needs for small models of every shape."""
    from tightmap.driver import solve
    from tightmap.runtime.clock import compiling_seconds

    before = compiling_seconds()
    for model in small_models():
        try:
            solve(model, method, max_iterations=ITERATIONS, time_limit=2.0)
        except ModelError:  # not for this method
            continue
    _without_edges()
    return compiling_seconds() - before


def _without_edges() -> None:
    """What runs on images too large for a list of their edges, on a small one."""
    from tightmap.canonical.build import lattice_graph
    from tightmap.energy.energies import energy, labelling_size, unary_argmin
    from tightmap.moves.coordinate_descent import local_minimum

    graph = lattice_graph(next(small_models()), least=0)
    assert graph is not None
    labels = local_minimum(graph, unary_argmin(graph))
    energy(graph, labels)
    labelling_size(graph, labels)


def compile_kernels(methods: Sequence[str], processes: int | None = None) -> Iterator[tuple[str, float]]:
    """Compile for the methods; yields each with its seconds of compilation as soon as it is ready."""
    count = min(processes or available(), max(1, len(methods)))
    if count == 1:
        yield from ((method, compile_method(method)) for method in methods)
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(compile_method, method): method for method in methods}
        for ready in as_completed(running):
            yield running[ready], ready.result()
