"""Other programs to compare with, where they are installed: each solves the same model, and we evaluate its labelling.

gco         GCO's alpha-expansion and alpha-beta-swap (gco-wrapper)
maxflow     PyMaxflow: one exact cut for binary models; alpha-expansion on grids with equal weights
toulbar2    exact branch and bound for cost function networks (pytoulbar2)
highs       the integer program of the local polytope, solved by HiGHS through SciPy

A peer that cannot take a model, or is not installed, refuses with the reason.  Times are of its own search, with the
conversion of the model left out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tightmap.errors import ModelError
from tightmap.factors.difference import DifferenceBlock
from tightmap.factors.potts import PottsBlock
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.model.model import Model

Found = dict[str, Any]
SMALL = 1000  # variables of a model up to which GCO needs no process of its own
LARGEST_ILP = 300_000  # joint labellings of all factors


def _pairs(model: Model) -> tuple[IntArray, FloatArray]:
    """(m, 2) scopes and (m, S, S) tables of a pairwise model whose variables all have S labels."""
    labels = np.unique(model.cardinalities)
    if model.max_order > 2 or len(labels) != 1:
        raise ModelError("the peer takes pairwise models with equally many labels everywhere")
    if model.num_factors * int(labels[0]) ** 2 > 2e8:
        raise ModelError("the dense tables of the model do not fit the peer")
    shape = (int(labels[0]),) * 2
    scopes = np.concatenate([b.scopes for b in model.blocks] or [np.zeros((0, 2), dtype=np.int64)])
    tables = np.concatenate([b.dense(np.arange(len(b)), shape) for b in model.blocks] or [np.zeros((0, *shape))])
    return scopes, tables


def _differences(model: Model) -> tuple[IntArray, FloatArray, FloatArray] | None:
    """The same without writing out a table for each edge, where all are one label difference times a weight."""
    labels = np.unique(model.cardinalities)
    same = len(labels) == 1 and all(isinstance(b, DifferenceBlock | PottsBlock) for b in model.blocks)
    if not same or len({type(b) for b in model.blocks}) != 1:
        return None
    limits = np.concatenate([b.limits if isinstance(b, DifferenceBlock) else np.zeros(1) for b in model.blocks])
    weights = np.concatenate([b.weights for b in model.blocks])
    if (limits != limits[0]).any() or not (weights > 0).any():
        return None
    block = next(b for b in model.blocks if (b.weights > 0).any())
    row = int(np.argmax(block.weights > 0))
    table = block.dense(np.array([row]), (int(labels[0]),) * 2)[0]
    base = table / table.max()
    return np.concatenate([b.scopes for b in model.blocks]), weights * (table.max() / block.weights[row]), base


def _shared(model: Model) -> tuple[IntArray, FloatArray, FloatArray]:
    """Edges, their weights, and the table that all edges share up to the weight."""
    found = _differences(model)
    if found is not None:
        return found
    scopes, tables = _pairs(model)
    size = tables.reshape(len(tables), -1).max(axis=1, initial=0.0)
    used = size > 0
    if not used.any():
        raise ModelError("the peer needs pairwise costs")
    base = tables[used][0] / size[used][0]
    if not np.isfinite(tables).all() or np.abs(tables - size[:, None, None] * base).max() > 1e-9 * size.max():
        raise ModelError("the peer takes one finite table times a weight for every edge")
    return scopes, size, base


def _gco(model: Model, time_limit: float | None, algorithm: str) -> Found:
    """GCO in a process without Numba and without our model, so that its memory is its own."""
    scopes, weights, base = _shared(model)
    if not np.array_equal(base, base.T):
        raise ModelError("GCO takes symmetric tables")
    unary = model.unaries.reshape(model.num_variables, -1)
    if not np.isfinite(unary).all():
        raise ModelError("GCO takes finite costs")
    arrays: dict[str, Any] = {
        "edges": np.sort(scopes, axis=1).astype(np.int32),
        "weights": weights,
        "unary": unary,
        "base": base,
    }
    scale = float(np.min(base[base > 0]))
    steps = [unary, weights * scale, base / scale]
    whole = all(np.allclose(a, np.rint(a), rtol=1e-12, atol=0.0) for a in steps)
    if whole:  # GCO computes in integers: give it the exact ones
        unary, weights, base = (np.rint(a).astype(np.int32) for a in steps)
        arrays |= {"unary": unary, "weights": weights, "base": base}
    if model.num_variables <= SMALL:
        from tightmap.bench.gco_process import cut

        begin = time.perf_counter()
        labels = cut(arrays, algorithm, whole)
        return {"labels": labels, "elapsed": time.perf_counter() - begin}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model.npz"
        np.savez(place, **arrays)
        del arrays, scopes, weights
        command = [sys.executable, "-m", "tightmap.bench.gco_process", str(place), algorithm, str(int(whole))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with np.load(place) as answer:
            return {
                "labels": answer["labels"].astype(np.int64),
                "elapsed": float(answer["elapsed"]),
                "peak_memory_mb": float(answer["peak"]),
            }


def _gco_expansion(model: Model, time_limit: float | None) -> Found:
    return _gco(model, time_limit, "expansion")


def _gco_swap(model: Model, time_limit: float | None) -> Found:
    return _gco(model, time_limit, "swap")


def _maxflow(model: Model, time_limit: float | None) -> Found:
    """One cut for a binary submodular model, else alpha-expansion on a grid whose edges all have the same table."""
    import maxflow

    scopes, tables = _pairs(model)
    unary = model.unaries.reshape(model.num_variables, -1)
    if unary.shape[1] != 2:
        return _maxflow_expansion(model, scopes, tables)
    a, b, c, d = tables[:, 0, 0], tables[:, 0, 1], tables[:, 1, 0], tables[:, 1, 1]
    if (b + c - a - d < -1e-9).any():
        raise ModelError("maxflow takes submodular models")
    # E(x, y) = a + (c - a) x + (d - c) y + (b + c - a - d) (1 - x) y
    cost = unary.copy()
    np.add.at(cost[:, 1], scopes[:, 0], c - a)
    np.add.at(cost[:, 1], scopes[:, 1], d - c)
    begin = time.perf_counter()
    graph = maxflow.Graph[float](model.num_variables, len(scopes))
    nodes = graph.add_nodes(model.num_variables)
    # a node on the sink side has label 1 and pays the capacity from the source
    graph.add_grid_tedges(nodes, cost[:, 1], cost[:, 0])
    zero = np.zeros(len(scopes))
    graph.add_edges(scopes[:, 0], scopes[:, 1], b + c - a - d, zero)
    graph.maxflow()
    labels = graph.get_grid_segments(nodes).astype(np.int64)
    elapsed = time.perf_counter() - begin
    return {"labels": labels, "elapsed": elapsed, "lower_bound": model.energy(labels), "status": "OPTIMAL"}


def _maxflow_expansion(model: Model, scopes: IntArray, tables: FloatArray) -> Found:
    from maxflow.fastmin import aexpansion_grid

    if model.grid_shape is None or not np.array_equal(scopes, model.edges(4)) or (tables != tables[0]).any():
        raise ModelError("PyMaxflow's expansion takes four-neighbour grids with one table for all edges")
    unary = model.unaries.reshape(*model.grid_shape, -1).copy()
    begin = time.perf_counter()
    labels = aexpansion_grid(unary, tables[0].copy())
    return {"labels": np.asarray(labels, dtype=np.int64).ravel(), "elapsed": time.perf_counter() - begin}


def _toulbar2(model: Model, time_limit: float | None) -> Found:
    import pytoulbar2

    if model.num_variables > 20_000:
        raise ModelError("toulbar2 is only run on models of at most 20000 variables")
    digits = 6
    top = 1e9
    network = pytoulbar2.CFN(ubinit=top, resolution=digits)
    for i, count in enumerate(model.cardinalities.tolist()):
        network.AddVariable(f"x{i}", range(count))
        costs = model.unaries[model.offset[i] : model.offset[i + 1]]
        network.AddFunction([i], np.where(np.isfinite(costs), costs, top).tolist())
    for block in model.blocks:
        for row, scope in enumerate(block.scopes.tolist()):
            shape = tuple(int(c) for c in model.cardinalities[scope])
            table = block.dense(np.array([row]), shape)[0]
            network.AddFunction(scope, np.where(np.isfinite(table), table, top).ravel().tolist())
    begin = time.perf_counter()
    answer = network.Solve(timeLimit=0 if time_limit is None else max(1, int(time_limit)))
    elapsed = time.perf_counter() - begin
    # costs were rounded to 6 decimals: the bound holds for the model up to half a unit of that per factor
    slack = 0.5 * 10.0**-digits * (model.num_factors + model.num_variables)
    bound = float(network.GetDDualBound()) + model.constant - slack
    if answer is None:
        return {"labels": None, "elapsed": elapsed, "lower_bound": bound, "status": "TIME_LIMIT"}
    proven = time_limit is None or elapsed < 0.95 * max(1, int(time_limit))
    labels = np.asarray(answer[0], dtype=np.int64)
    if proven:  # a complete search proves its answer, whatever the bound was when the last branch was closed
        bound = max(bound, model.energy(labels) - 2 * slack)
    return {
        "labels": labels,
        "elapsed": elapsed,
        "lower_bound": min(bound, model.energy(labels)),
        "status": "OPTIMAL" if proven else "TIME_LIMIT",
    }


def _highs(model: Model, time_limit: float | None) -> Found:
    """Indicator variables of labels and of joint labellings, tied together by their marginals."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_matrix

    joint = sum(float(np.prod(model.cardinalities[s].astype(float))) for b in model.blocks for s in b.scopes)
    if joint > LARGEST_ILP:
        raise ModelError(
            f"HiGHS is only run on models with at most {LARGEST_ILP} joint labellings, this has {joint:.3g}"
        )
    costs = [model.unaries]
    rows: list[IntArray] = []
    columns: list[IntArray] = []
    values: list[FloatArray] = []
    n = model.num_variables
    column = int(model.offset[-1])
    count = n
    rows.append(np.repeat(np.arange(n), model.cardinalities))
    columns.append(np.arange(column))
    values.append(np.ones(column))
    for block in model.blocks:
        for c, scope in enumerate(block.scopes):
            shape = tuple(int(k) for k in model.cardinalities[scope])
            table = block.dense(np.array([c]), shape)[0]
            costs.append(table.ravel())
            states = np.indices(shape).reshape(len(shape), -1)
            for p, variable in enumerate(scope.tolist()):
                rows += [count + states[p], count + np.arange(shape[p])]
                columns += [column + np.arange(table.size), model.offset[variable] + np.arange(shape[p])]
                values += [np.ones(table.size), -np.ones(shape[p])]
                count += shape[p]
            column += table.size
    cost = np.concatenate(costs)
    forbidden = ~np.isfinite(cost)
    whole = np.zeros(len(cost))
    whole[: int(model.offset[-1])] = 1
    matrix = coo_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), (count, len(cost)))
    right = np.concatenate([np.ones(n), np.zeros(count - n)])
    begin = time.perf_counter()
    answer = milp(
        np.where(forbidden, 0.0, cost),
        integrality=whole,
        bounds=Bounds(0.0, np.where(forbidden, 0.0, 1.0)),
        constraints=LinearConstraint(matrix.tocsc(), right, right),
        options={} if time_limit is None else {"time_limit": float(time_limit)},
    )
    elapsed = time.perf_counter() - begin
    bound = -np.inf if answer.mip_dual_bound is None else float(answer.mip_dual_bound) + model.constant
    found: Found = {"labels": None, "elapsed": elapsed, "lower_bound": bound, "status": "TIME_LIMIT"}
    if answer.x is not None:
        found["labels"] = np.array(
            [int(np.argmax(answer.x[a:b])) for a, b in zip(model.offset, model.offset[1:], strict=False)]
        )
        found["status"] = "OPTIMAL" if answer.status == 0 else "TIME_LIMIT"
    elif answer.status == 2:
        found["status"] = "INFEASIBLE"
    return found


# name -> (function, the module it needs)
PEERS: dict[str, tuple[Callable[[Model, float | None], Found], str]] = {
    "peer:gco-expansion": (_gco_expansion, "gco"),
    "peer:gco-swap": (_gco_swap, "gco"),
    "peer:maxflow": (_maxflow, "maxflow"),
    "peer:toulbar2": (_toulbar2, "pytoulbar2"),
    "peer:highs": (_highs, "scipy"),
}


def installed() -> list[str]:
    """The peers whose module is there."""
    from importlib.util import find_spec

    return [name for name, (_, module) in PEERS.items() if find_spec(module) is not None]


def solve_with(name: str, model: Model, time_limit: float | None) -> Found:
    """Solve with a peer: labels, elapsed, and where it gives them lower_bound and status."""
    function, _ = PEERS[name]
    if (model.clamped >= 0).any():
        raise ModelError("peers take models without evidence")
    for block in model.blocks:
        ordered = np.sort(block.scopes, axis=1)
        if (ordered[:, 1:] == ordered[:, :-1]).any():
            raise ModelError("peers take factors of different variables")
    return {"status": "CONVERGED", **function(model, time_limit)}
