"""Tiny Potts models from their numbers to the answer, as each program's own user would write it.

Where a search takes microseconds a caller waits for everything around it, so the whole is timed: building the model or
the graph, solving, reading the labels.  Nothing is converted from our model on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.model.model import Model

VARIABLES = 10
WEIGHT = 5.0


def numbers(labels: int) -> tuple[FloatArray, IntArray]:
    """Unary costs and edges of a ring."""
    rng = np.random.default_rng(0)
    edges = np.array([[i, i + 1] for i in range(VARIABLES - 1)] + [[0, VARIABLES - 1]])
    return rng.integers(0, 20, size=(VARIABLES, labels)).astype(np.float64), edges


def build(unary: FloatArray, edges: IntArray) -> Model:
    model = Model(np.full(unary.shape[0], unary.shape[1]))
    model.add_unaries(unary)
    model.add_potts(edges, np.full(len(edges), WEIGHT))
    return model


def _maxflow(unary: FloatArray, edges: IntArray) -> Any:
    import maxflow

    if unary.shape[1] != 2:
        raise ModelError("PyMaxflow cuts models of two labels")
    graph = maxflow.Graph[float](len(unary), len(edges))
    nodes = graph.add_nodes(len(unary))
    graph.add_grid_tedges(nodes, unary[:, 1], unary[:, 0])
    weights = np.full(len(edges), WEIGHT)
    graph.add_edges(edges[:, 0], edges[:, 1], weights, weights)
    graph.maxflow()
    return graph.get_grid_segments(nodes)


def _gco(unary: FloatArray, edges: IntArray) -> Any:
    import gco

    table = 1 - np.eye(unary.shape[1], dtype=np.int32)
    weights = np.full(len(edges), int(WEIGHT), dtype=np.int32)
    return gco.cut_general_graph(
        edges.astype(np.int32), weights, unary.astype(np.int32), table, algorithm="expansion", down_weight_factor=1
    )


def _toulbar2(unary: FloatArray, edges: IntArray) -> Any:
    import pytoulbar2

    network = pytoulbar2.CFN(resolution=0)
    table = (WEIGHT * (1.0 - np.eye(unary.shape[1]))).ravel().tolist()
    for i, costs in enumerate(unary.tolist()):
        network.AddVariable(f"x{i}", range(len(costs)))
        network.AddFunction([i], costs)
    for pair in edges.tolist():
        network.AddFunction(pair, table)
    return network.Solve()[0]


PEERS: dict[str, Callable[[FloatArray, IntArray], Any]] = {
    "peer:maxflow": _maxflow,
    "peer:gco-expansion": _gco,
    "peer:toulbar2": _toulbar2,
}
PROVE = {"peer:maxflow", "peer:toulbar2"}


def once(method: str, labels: int, **arguments: Any) -> tuple[float, float | None, str, float]:
    """Energy, bound, status and seconds of one run from nothing."""
    from tightmap.driver import solve

    unary, edges = numbers(labels)
    bound: float | None = None
    if method.startswith("peer:"):
        if method not in PEERS:
            raise ModelError(f"{method} is not run on tiny models")
        begin = time.perf_counter()
        found = PEERS[method](unary, edges)
        seconds = time.perf_counter() - begin
        status = "OPTIMAL" if method in PROVE else "CONVERGED"
    else:
        begin = time.perf_counter()
        result = solve(build(unary, edges), method, keep_state=False, **arguments)
        seconds = time.perf_counter() - begin
        found, bound, status = result.labels, result.lower_bound, result.status.name
    return build(unary, edges).energy(np.asarray(found, dtype=np.int64)), bound, status, seconds
