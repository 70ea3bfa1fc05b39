"""Kinds of factor that are not part of the package: in models, files and descriptions, and through the suites."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import tightmap as tm
from engines import ALL
from gentle import gentle
from tightmap.canonical import lower
from tightmap.factors import custom
from tightmap.factors.custom import CustomBlock
from tightmap.graph.graph import Kind
from tightmap.testing import kind_conformance
from tightmap.testing.conformance import keeps_its_word_on
from tightmap.testing.models import optimum
from tightmap.view.describe import describe


@dataclass(frozen=True, eq=False)
class Rising(CustomBlock):
    """slope * max(a - b, 0), forbidden beyond ``jump``: not symmetric, hard, a number per factor and a shared one."""

    slopes: np.ndarray
    jump: np.ndarray

    name: ClassVar[str] = "rising"
    per_row: ClassVar[tuple[str, ...]] = ("slopes",)

    def costs(self, rows, labels):
        fall = np.maximum(labels[:, 0] - labels[:, 1], 0)
        return np.where(fall > self.jump, np.inf, self.slopes[rows] * fall)


@dataclass(frozen=True, eq=False)
class Parity(CustomBlock):
    """1 where the sum of the labels is odd, for any number of variables; no parameters at all."""

    name: ClassVar[str] = "parity"

    def costs(self, rows, labels):
        return labels.sum(axis=1) % 2


@dataclass(frozen=True, eq=False)
class Alarm(CustomBlock):
    """A cost where all variables have their last label but one: far too large for a table, one exception."""

    cost: np.ndarray

    name: ClassVar[str] = "alarm"

    def costs(self, rows, labels):
        return np.where((labels == 1).all(axis=1), self.cost, 0.0)

    def exceptions(self, row, shape):
        return np.ones((1, len(shape)), dtype=np.int64), np.array([float(self.cost)]), 0.0


@dataclass(frozen=True, eq=False)
class Broken(Parity):
    """Costs that are what the test wants."""

    result: np.ndarray

    name: ClassVar[str] = "broken"

    def costs(self, rows, labels):
        return self.result


@pytest.fixture(autouse=True)
def registered():
    for kind in (Rising, Parity, Alarm):
        tm.register_kind(kind)
    yield
    custom._registered.clear()


def pairs():
    """A ring of pairs, unsorted scopes, beside a Potts factor on a scope of its own."""
    rng = np.random.default_rng(3)
    model = tm.Model([3, 2, 3, 4])
    model.add_unaries([rng.normal(size=c) for c in model.cardinalities])
    scopes = [[0, 2], [2, 1], [3, 0], [1, 3]]
    model.add_custom(Rising(scopes, [1.0, 2.0, 1.0, 0.5], np.array([1.5, 0.5, 1.5, 1.0]), np.array(2.0)))
    model.add_potts([[1, 0]], 0.7)
    return model


def higher():
    """Three and four variables, a repeated one, a one-label one, a negative weight, and pairs on top."""
    rng = np.random.default_rng(4)
    model = tm.Model([2, 3, 2, 1, 3])
    model.add_unaries([rng.normal(size=c) for c in model.cardinalities])
    model.add_custom(Parity([[4, 1, 0], [0, 1, 1], [3, 2, 0]], [1.5, 2.0, -0.5]))
    model.add_custom(Parity([[4, 2, 1, 0]], 1.0))
    model.add_custom(Rising([[1, 4]], 1.0, np.array([0.25]), np.array(1.0)))
    return model


def large():
    """Factors of fifteen variables, one of them on top of another: nobody can write their tables."""
    model = tm.Model([3] * 16)
    model.add_unaries(np.random.default_rng(5).normal(size=(16, 3)))
    model.add_custom(Alarm([list(range(15)), list(range(1, 16))], [2.0, 1.0], np.array(4.0)))
    return model


MODELS = {"pairs": pairs, "higher": higher}


@pytest.mark.parametrize("make", [pairs, higher, large])
def test_kinds_pass_their_suite(make):
    assert kind_conformance(make()) > 20


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("method", ALL)
def test_every_method_keeps_its_word(method, model, monkeypatch):
    given = MODELS[model]()
    keeps_its_word_on(gentle(method, monkeypatch), given, optimum(given))


def test_the_suite_finds_a_kind_that_contradicts_itself():
    @dataclass(frozen=True, eq=False)
    class Liar(Parity):
        name: ClassVar[str] = "liar"

        def tables(self, rows, shape):
            return np.zeros((len(rows), *shape))

    model = tm.Model([2, 2])
    model.add_custom(Liar([[0, 1]], 1.0))
    with pytest.raises(AssertionError, match=r"liar.*table.*not its costs"):
        kind_conformance(model)


def test_the_canonical_form_knows_what_a_kind_is():
    """Tables are shared among factors that agree, and recognised: parity of two binary variables is Potts."""
    model = tm.Model([2] * 40)
    model.add_custom(Parity(np.stack([np.arange(39), np.arange(1, 40)], axis=1), np.arange(1.0, 40.0)))
    graph = model.graph()
    assert set(graph.arrays.kind) == {Kind.POTTS} and sorted(graph.arrays.weight) == list(range(1, 40))
    odd = tm.Model([3] * 40)
    odd.add_custom(Parity(np.stack([np.arange(39), np.arange(1, 40)], axis=1), np.arange(1.0, 40.0)))
    (group,) = describe(odd)["groups"]
    assert (group["kind"], group["factors"], group["tables"], group["weights"]) == ("dense", 39, 1, 39)
    assert "parity factors of order 2" in odd._repr_html_()


def test_costs_of_any_size_are_counted_in_a_unit_that_fits():
    model = tm.Model([3, 3])
    model.add_custom(Rising([[0, 1]], 1.0, np.array([1e-200]), np.array(5.0)))
    model.add_unaries(np.array([[3e-200, 2e-200, 0.0], [0.0, 2e-200, 2e-200]]))
    assert model.graph().power != 0
    assert tm.solve(model, "exact").energy == optimum(model) > 0.0


def test_few_exceptions_are_found_without_being_listed(monkeypatch):
    """A kind that lists nothing is tried label by label; a long table with few exceptions is kept as a list of them."""
    monkeypatch.setattr(lower, "SMALL", 16)
    monkeypatch.setattr(Alarm, "exceptions", CustomBlock.exceptions)
    model = tm.Model([3] * 5)
    model.add_unaries(np.random.default_rng(0).normal(size=(5, 3)))
    model.add_custom(Alarm([[4, 1, 0, 2, 3]], 1.0, np.array(-9.0)))
    assert set(model.graph().arrays.kind) == {Kind.SPARSE}
    assert tm.solve(model, "exact").energy == pytest.approx(optimum(model))
    monkeypatch.setattr(lower, "LARGEST", 100)
    model.add_constant(0.0)
    with pytest.raises(tm.ModelError, match=r"alarm: .*\(4, 1, 0, 2, 3\) has 243 labellings.*Alarm\.exceptions"):
        model.graph()


def test_what_a_kind_lists_is_compared_with_its_costs(monkeypatch):
    for words, listed in {
        "not those of": (np.ones((1, 15), dtype=int), [1.0], 0.0),
        "listed twice": (np.ones((2, 15), dtype=int), [4.0, 4.0], 0.0),
        "out of range": (np.full((1, 15), 3), [4.0], 0.0),
        r"expected \(K, 15\)": (np.ones((1, 14), dtype=int), [4.0], 0.0),
    }.items():
        monkeypatch.setattr(Alarm, "exceptions", lambda self, row, shape, listed=listed: listed)
        with pytest.raises(tm.ModelError, match=words):
            large().graph()


@pytest.mark.parametrize("suffix", [".npz", ".uai", ".h5", ".wcsp"])
def test_formats_keep_the_energies(suffix, tmp_path):
    """The native format keeps the kind, others write tables."""
    model = pairs()
    path = tmp_path / f"model{suffix}"
    tm.write(model, path)
    again = tm.read(path)
    assert (suffix == ".npz") == any(isinstance(block, Rising) for block in again.blocks)
    for x in np.ndindex(*model.cardinalities):
        assert again.energy(np.array(x)) == pytest.approx(model.energy(np.array(x)), rel=1e-6, abs=1e-4)


def test_a_file_with_a_kind_that_nobody_knows_is_refused(tmp_path):
    tm.write(pairs(), tmp_path / "model.npz")
    custom._registered.clear()
    with pytest.raises(tm.ModelError, match=r"unknown kind of factor 'rising'; tightmap\.register_kind"):
        tm.read(tmp_path / "model.npz")


def test_entry_points_make_a_kind_known_to_files(tmp_path):
    """A package that is installed with the entry point group tightmap.kinds needs no call."""
    tm.write(pairs(), tmp_path / "model.npz")
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tightmap.kinds]\nrising = toy_kinds:Rising\n")
    lines = Path(__file__).read_text().splitlines(keepends=True)
    begin = next(n for n, line in enumerate(lines) if line.startswith("@dataclass"))
    end = next(n for n, line in enumerate(lines) if line.startswith("class Parity")) - 1
    head = "from dataclasses import dataclass\nfrom typing import ClassVar\nimport numpy as np\n"
    head += "from tightmap.factors.custom import CustomBlock\n"
    (tmp_path / "toy_kinds.py").write_text(head + "".join(lines[begin:end]))
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}]\n"
        "import tightmap as tm\n"
        f"print(tm.read({str(tmp_path / 'model.npz')!r}).energy([2, 0, 0, 3]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert float(done.stdout) == pairs().energy([2, 0, 0, 3]), done.stderr


def test_what_is_no_kind_is_refused():
    for wrong in (3, int, CustomBlock, tm.Model):
        with pytest.raises(tm.OptionError, match="register_kind"):
            tm.register_kind(wrong)
    taken = dataclass(frozen=True, eq=False)(type("Taken", (Parity,), {"name": "POTTS"}))
    with pytest.raises(tm.OptionError, match="itself"):
        tm.register_kind(taken)
    missing = dataclass(frozen=True, eq=False)(type("Missing", (Parity,), {"per_row": ("slopes",)}))
    with pytest.raises(tm.OptionError, match="no field 'slopes'"):
        tm.register_kind(missing)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (Parity([[0, 2]], 1.0), r"variables are 0\.\.1"),
        (Parity([[0]], 1.0), "at least 2 variables"),
        (Parity([[0, 1]], [1.0, 2.0]), "1 finite numbers"),
        (Rising([[0, 1]], 1.0, np.ones(2), np.array(1.0)), "slopes: expected one entry for each of 1 factors"),
        (Broken([[0, 1]], 1.0, np.zeros((1, 2))), r"the shape \(1, 2\)"),
        (Broken([[0, 1]], 1.0, np.array([np.nan])), r"costs nan at labels \(0, 0\)"),
        (Broken([[0, 1]], 1.0, np.array(["a"])), "costs must return numbers"),
        (Broken([[0, 1]], 1.0, np.array([1j])), "complex"),
        (Broken([[0, 1]], -1.0, np.array([np.inf])), r"\+inf cannot have a negative weight"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_models_check_what_they_are_given(block, words):
    model = tm.Model([2, 3])
    with pytest.raises(tm.ModelError, match=words):
        model.add_custom(block)
    assert not model.blocks


def test_forbidden_labellings_and_negative_weights_do_not_go_together():
    """Found where the tables are made: the labelling that the model tried is allowed."""
    model = tm.Model([4, 4])
    model.add_custom(Rising([[0, 1]], -1.0, np.ones(1), np.array(1.0)))
    with pytest.raises(tm.ModelError, match="negative weight"):
        model.graph()
