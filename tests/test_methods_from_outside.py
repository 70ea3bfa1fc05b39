"""A method that is not part of the package: by instance, by name, in the benchmark, through the conformance suite."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import tightmap as tm
from tightmap import registry
from tightmap.solvers.base import Final, Progress, Solver
from tightmap.solvers.capabilities import Capabilities
from tightmap.testing import conformance
from tightmap.testing.models import grid_model


# no "from __future__ import annotations" in this file: options are typed by real types
@dataclass(frozen=True)
class RandomSearch(Solver):
    """draws  labellings to try"""

    draws: int = 50
    label: int | None = None

    name: ClassVar[str] = "random-search"
    summary: ClassVar[str] = "uniformly random labellings: a toy"
    capabilities: ClassVar[Capabilities] = Capabilities(random=True)

    def start(self, graph, init, context):
        return {"graph": graph, "rng": context.rng(), "left": self.draws}

    def step(self, state):
        state["left"] -= 1
        cards = state["graph"].arrays.cards
        labels = state["rng"].integers(0, cards).astype(np.int64)
        return Progress(labels=labels, done=state["left"] <= 0)

    def finish(self, state):
        return Final(note="drew lots")


@dataclass(frozen=True)
class Liar(RandomSearch):
    name: ClassVar[str] = "liar"

    def step(self, state):
        return Progress(bound=1e9, done=True)


@pytest.fixture
def registered():
    tm.register(RandomSearch)
    yield "random-search"
    registry._registered.clear()


def test_an_instance_is_a_method():
    model = grid_model(np.random.default_rng(0))
    result = tm.solve(model, RandomSearch(draws=5))
    assert result.method == "random-search" and result.options == {"draws": 5, "label": None}
    assert result.note == "drew lots" and result.iterations == 5
    with pytest.raises(tm.OptionError, match="instance"):
        tm.solve(model, RandomSearch(), draws=3)


def test_a_registered_method_is_known_by_name(registered):
    model = grid_model(np.random.default_rng(0))
    assert tm.solve(model, registered, draws="7").iterations == 7
    assert registered in [row["name"] for row in tm.methods()]
    with pytest.raises(tm.OptionError, match=r"takes int, got 1\.5"):
        tm.solve(model, registered, draws=1.5)
    assert tm.solve(model, registered, label=None).options["label"] is None


def test_the_suite_passes_a_sound_method_and_catches_a_liar():
    assert conformance(RandomSearch) > 15
    with pytest.raises(AssertionError, match=r"liar.*bound above the optimum"):
        conformance(Liar(draws=1))


@pytest.mark.parametrize("wrong", [3, int, Solver, tm.Model])
def test_only_solvers_are_registered(wrong):
    with pytest.raises(tm.OptionError, match="register"):
        tm.register(wrong)


def test_names_of_our_own_are_not_given_away():
    with pytest.raises(tm.OptionError, match="itself"):
        tm.register(RandomSearch, name="admm")


def test_earlier_names_still_work():
    model = grid_model(np.random.default_rng(0), 3, 3)
    assert tm.solve(model, "sa", cycles=1, sweeps=1).method == "annealing"


def test_entry_points_make_a_method_known(tmp_path):
    """A package that is installed with the entry point group tightmap.methods needs no call."""
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tightmap.methods]\nrandom-search = toy_methods:RandomSearch\n")
    (tmp_path / "toy_methods.py").write_text(Path(__file__).read_text())
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\n"
        "import tightmap as tm\n"
        "model = tm.Model([2, 2]); model.add_potts([[0, 1]], 1.0)\n"
        "print(tm.solve(model, 'random-search', draws=3).iterations)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "3", done.stderr


def test_workers_of_the_benchmark_find_registered_methods(registered, tmp_path, monkeypatch):
    (tmp_path / "toy_methods.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(tmp_path)
    registry._registered.clear()
    import toy_methods

    tm.register(toy_methods.RandomSearch)
    assert registry.place_of("random-search") == "toy_methods:RandomSearch"
    assert registry.solver_class("toy_methods:RandomSearch") is toy_methods.RandomSearch
    with pytest.raises(tm.OptionError, match="cannot be loaded"):
        registry.solver_class("toy_methods:Nothing")
