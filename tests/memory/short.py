"""The short form of the memory check: the kernels with the most index arithmetic, on the shapes that are hardest on it.

Run with the environment of ``check.PASSES["bounds"]``.  Every run either answers or ends the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tightmap as tm
from memory.models import FIXED, grid, grid_with_gap, uneven_grid
from tightmap.canonical import build
from tightmap.model import model as models
from tightmap.solvers.cuts import expansion as cuts

ADMM: dict[str, Any] = {"polish": False, "restarts": 1}


def runs() -> Iterator[tuple[str, tm.Model, dict[str, Any]]]:
    """Method, model and options; models of one method share its kernels."""
    gaps = [grid_with_gap(), grid_with_gap(gap=(0, 1)), grid_with_gap(1500, 3001)]
    gaps += [uneven_grid(np.random.default_rng(seed), *shape) for seed, shape in enumerate([(2, 5), (7, 3), (4, 9)])]
    for model in gaps:
        yield "expansion", model, {}
        yield "fastpd", model, {}
        yield "trws", model, {}
    yield "trws", FIXED["more than 32767 labels"](), {}
    for shape in ((8, 16), (16, 15), (24, 20)):  # whole strips: the engine for grids
        for kind in ("potts", "linear", "quadratic", "wide"):
            yield "trws", grid(*shape, 9, kind), {"precision": "double"}
            yield "trws", grid(*shape, 9, kind, 8), {"precision": "double"}
    for shape in ((1, 9), (9, 1), (2, 7), (7, 2), (3, 17)):
        for neighbours in (4, 8):
            yield "admm", grid(*shape, 3, "potts", neighbours), ADMM
            yield "admm", grid(*shape, 5, "linear", neighbours), ADMM


if __name__ == "__main__":
    count = 0
    for method, model, options in runs():
        result = tm.solve(model, method, max_iterations=20, **options)
        assert result.energy == model.energy(result.labels)
        count += 1
    build.IMPLICIT = 0  # as if these were large: without lists of their edges
    for shape in ((3, 3), (3, 17), (9, 4)):
        for neighbours in (4, 8):
            for kind in ("potts", "linear", "quadratic"):
                model = grid(*shape, 4, kind, neighbours)
                result = tm.solve(model, "trws", max_iterations=3)
                assert result.energy == model.energy(result.labels)
                count += 1
    models.WORTH = cuts.WORTH = cuts.RESTART_SIZE = 0  # and with costs and duals in few bits
    for shape in ((3, 17), (16, 15)):
        for neighbours in (4, 8):
            for kind in ("potts", "linear"):
                for method in ("trws", "expansion"):
                    model = grid(*shape, 4, kind, neighbours, integral=True)
                    assert model.single
                    result = tm.solve(model, method, max_iterations=3)
                    assert result.energy == model.energy(result.labels)
                    count += 1
    print(f"{count} runs")
