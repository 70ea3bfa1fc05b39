"""The protocol of the engines of admm and trws: what one exports another of the same method goes on from."""

from __future__ import annotations

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model
from tightmap.graph.stencil import find_stencil
from tightmap.solvers.admm.engine import Step
from tightmap.solvers.admm.general import GeneralSplitting
from tightmap.solvers.admm.grid import GridSplitting
from tightmap.solvers.admm.updates import CYCLIC, Form
from tightmap.solvers.trws.engines import GeneralMessages, GridMessages

METHODS = ("admm", "trws")
KINDS = ("grid", "general")


@pytest.fixture(scope="module", params=[4, 8])
def graph(request):
    rng = np.random.default_rng(3)
    if request.param == 4:
        return grid_model(rng, 9, 13, labels=4, kind="potts", integral=False).graph()
    model = tm.Model.grid(9, 13, 4)
    model.add_unaries(rng.random((117, 4)) * 10)
    model.add_potts(model.edges(8), rng.random(len(model.edges(8))) * 4)
    return model.graph()


def engine_of(method, kind, graph):
    if method == "trws":
        if kind == "general":
            return GeneralMessages(graph, np.arange(graph.n))
        return GridMessages(graph, find_stencil(graph), 1, np.float64)
    if kind == "grid":
        engine = GridSplitting(find_stencil(graph), graph.arrays.unary, 0.0, np.float64, 1, True)
    else:
        engine = GeneralSplitting(graph.arrays, Form(2, CYCLIC, True, False, False, 1.0), 0.0, 1, True)
    engine.reset(None)
    return engine


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_splittings_travel(first, second, graph):
    """Ten iterations, and then ten more on another engine, are twenty on one."""
    whole, begun, continued = (engine_of("admm", kind, graph) for kind in (first, first, second))
    how = Step(0.5 * whole.kappa)
    whole.iterate(20, how)
    begun.iterate(10, how)
    continued.load(begun.export())
    continued.iterate(10, how)
    for a, b in zip(whole.export(), continued.export(), strict=True):
        assert np.abs(a).max() > 0.0
        np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_messages_travel(first, second, graph):
    """An engine that goes on from the messages of another has at least its bound after one iteration."""
    begun, continued = (engine_of("trws", kind, graph) for kind in (first, second))
    cold, _ = engine_of("trws", second, graph).iterate(1)
    bound, error = begun.iterate(5)
    continued.load(begun.export())
    after, _ = continued.iterate(1)
    assert after >= bound - error - 1e-9 * abs(bound) and after > cold


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_engine_holds_nothing(method, kind, graph):
    engine = engine_of(method, kind, graph)

    def held():
        fields = [value for value in vars(engine).values() if isinstance(value, tuple)]
        return sum(a.nbytes for value in fields for a in value if isinstance(a, np.ndarray))

    assert held() >= graph.arrays.unary.nbytes
    engine.close()
    assert held() == 0
