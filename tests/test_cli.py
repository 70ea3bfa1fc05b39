"""The command line as a person or a script meets it: exit codes, sentences, JSON, interruption."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import tightmap as tm
from command_line import assert_one_sentence, tightmap
from problems import grid_model
from tightmap.cli import main as cli
from tightmap.runtime import clock


@pytest.fixture
def inside(capsys):
    """The same inside of this process, which is quicker."""

    def run(*args):
        code = cli.run([str(a) for a in args])
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


@pytest.fixture(autouse=True)
def quiet_compilation():
    """Commands that run inside of this process announce compilations; other tests do not expect that."""
    yield
    clock.announce_always(False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    tm.write(grid_model(np.random.default_rng(0), 5, 6, 3), path / "grid.h5")
    hard = tm.Model([2, 2])
    hard.add_factors([[0, 1]], np.full((2, 2), np.inf))
    tm.write(hard, path / "infeasible.npz")
    return path


def test_help_is_quick_and_imports_no_compiler():
    code = "import sys; from tightmap.cli.main import app; from typer.main import get_command; get_command(app); "
    code += "sys.exit('numba' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    run = tightmap("--help")
    assert run.returncode == 0
    for command in ("solve", "info", "convert", "methods", "compile", "demo"):
        assert command in run.stdout


def test_solve_writes_everything(folder, tmp_path):
    model = tm.read(folder / "grid.h5")
    run = tightmap(
        "solve", folder / "grid.h5", "--method", "bcd", "--option", "restarts=2", "--json", tmp_path / "r.json",
        "--labels", tmp_path / "l.txt", "--trace", tmp_path / "t.csv", "--seed", 3, "--threads", 1,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "energy" in run.stdout
    assert run.stderr in ("", "compiling kernels, first run only\n")  # nothing else where nobody is looking
    record = json.loads((tmp_path / "r.json").read_text())
    assert set(record) == {
        "model", "method", "options", "seed", "threads", "status", "energy", "lower_bound", "gap", "feasible",
        "iterations", "elapsed", "labels",
    }  # fmt: skip
    assert record["model"] == {
        "path": str(folder / "grid.h5"), "variables": 30, "factors": 49, "max_order": 2, "max_labels": 3,
    }  # fmt: skip
    assert record["options"]["restarts"] == 2 and record["seed"] == 3 and record["threads"] == 1
    assert record["lower_bound"] is None and record["gap"] is None
    assert model.energy(np.array(record["labels"])) == pytest.approx(record["energy"])
    assert tm.read_labels(tmp_path / "l.txt").tolist() == record["labels"]
    rows = list(csv.DictReader((tmp_path / "t.csv").read_text().splitlines()))
    assert int(rows[-1]["iteration"]) == record["iterations"] and float(rows[-1]["energy"]) == pytest.approx(
        record["energy"]
    )
    warm = tightmap("solve", folder / "grid.h5", "--method", "bcd", "--init", tmp_path / "l.txt", "--json", "-")
    assert json.loads(warm.stdout)["energy"] <= record["energy"]


def test_info_convert_methods(inside, folder, tmp_path):
    run = inside("info", folder / "grid.h5", "--json", "-")
    facts = json.loads(run.stdout)
    assert facts["variables"] == 30 and facts["groups"][0]["kind"] == "potts"
    assert "Potts" in inside("info", folder / "grid.h5").stdout
    assert inside("convert", folder / "grid.h5", tmp_path / "g.uai").returncode == 0
    x = np.zeros(30, dtype=np.int64)
    assert tm.read(tmp_path / "g.uai").energy(x) == pytest.approx(tm.read(folder / "grid.h5").energy(x))
    assert "bcd" in inside("methods").stdout
    assert "bcd" in [row["name"] for row in json.loads(inside("methods", "--json", "-").stdout)]


def test_brackets_are_shown_as_they_are(inside, monkeypatch):
    monkeypatch.setattr("tightmap.registry.installed", lambda name: name != "cpsat")
    assert 'not installed (pip install "tightmap[cpsat]")' in inside("methods").stdout
    assert 'not installed: pip install "tightmap[cpsat]"' in inside("methods", "cpsat").stdout


def test_compile_prepares_methods():
    done = tightmap("compile", "--method", "bcd", "--method", "qpbo", "--processes", "1")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["bcd", "qpbo"]
    assert all(float(line.split()[1]) >= 0 for line in done.stdout.splitlines())
    wrong = tightmap("compile", "--method", "nothing")
    assert_one_sentence(wrong, "nothing", "bcd")


def test_version(inside):
    run = inside("--version")
    assert (run.returncode, run.stdout, run.stderr) == (0, f"tightmap {tm.__version__}\n", "")


def test_infeasible_has_its_own_exit_code(inside, folder):
    run = inside("solve", folder / "infeasible.npz", "--method", "bcd", "--json", "-")
    assert run.returncode == 3
    record = json.loads(run.stdout)
    assert record["status"] == "INFEASIBLE" and record["energy"] is None and record["feasible"] is False


def test_evidence(inside, folder, tmp_path):
    (tmp_path / "e.evid").write_text("2 7 2 0 1\n")
    run = inside("solve", folder / "grid.h5", "--method", "bcd", "--evidence", tmp_path / "e.evid", "--json", "-")
    labels = json.loads(run.stdout)["labels"]
    assert labels[0] == 1 and labels[7] == 2


def test_remarks_on_evidence_are_sentences(inside, folder, tmp_path):
    """Not a line of the library's source with its path."""
    (tmp_path / "e.evid").write_text("2 0 1 0 0\n")  # two pairs, or two samples
    run = inside("solve", folder / "grid.h5", "--method", "bcd", "--evidence", tmp_path / "e.evid")
    first, second = run.stderr.splitlines()
    assert first.startswith("tightmap: ") and "both layouts" in first and "FormatWarning" not in run.stderr
    assert second.startswith("tightmap: ") and "given both 1 and 0" in second and run.returncode == 2


def test_bad_input_is_one_sentence(inside, folder, tmp_path):
    whole = (folder / "grid.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    assert_one_sentence(inside("info", tmp_path / "cut.h5"), "cut.h5")
    (tmp_path / "huge.uai").write_text("MARKOV\n1000000000000\n2 2\n")
    assert_one_sentence(inside("info", tmp_path / "huge.uai"), "huge.uai")
    (tmp_path / "nan.uai").write_text("MARKOV\n1\n2\n1\n1 0\n2 nan 1\n")
    assert_one_sentence(inside("info", tmp_path / "nan.uai"), "nan.uai")
    (tmp_path / "index.uai").write_text("MARKOV\n1\n2\n1\n1 4\n2 1 1\n")
    assert_one_sentence(inside("info", tmp_path / "index.uai"), "index.uai")
    assert_one_sentence(inside("solve", folder / "grid.h5", "--method", "nosuch"), "nosuch", "bcd")
    assert_one_sentence(
        inside("solve", folder / "grid.h5", "--method", "bcd", "--option", "rhoo=1"), "rhoo", "restarts"
    )
    assert_one_sentence(inside("solve", folder / "grid.h5", "--option", "novalue"), "KEY=VALUE")
    twice = ("--method", "bcd", "--option", "restarts=1", "--option", "restarts=2")
    assert_one_sentence(inside("solve", folder / "grid.h5", *twice), "restarts is given twice")
    for name in ("absent.h5", "absent", "absent.nosuch"):
        assert_one_sentence(inside("solve", tmp_path / name), name, "no such file")
    assert_one_sentence(inside("info", tmp_path), tmp_path.name, "this is a folder")
    run = inside("solve", folder / "grid.h5", "--time-limit", "soon")
    assert run.returncode == 2 and "Traceback" not in run.stderr
    before = sorted(p.name for p in tmp_path.iterdir())
    run = inside("convert", folder / "grid.h5", tmp_path / "out.nosuch")
    assert run.returncode == 2 and sorted(p.name for p in tmp_path.iterdir()) == before


# ---------------------------------------------------------------------- errors from inside


def out_of_memory():
    raise MemoryError("Allocation failed (probably too large).")


def out_of_memory_in_a_kernel():
    try:
        out_of_memory()
    except MemoryError as error:
        raise SystemError("returned a result with an exception set") from error


def broken_kernel():
    raise SystemError("error return without exception set")


def too_deep():
    return too_deep()


@pytest.mark.parametrize(
    ("accident", "words"),
    [
        (out_of_memory, "out of memory (Allocation failed (probably too large).)"),
        (out_of_memory_in_a_kernel, "out of memory (Allocation failed"),
        (broken_kernel, "a compiled part failed (error return"),
        (too_deep, "nested too deeply (maximum recursion depth"),
    ],
)
def test_errors_from_inside_are_one_sentence(folder, monkeypatch, capsys, accident, words):
    from tightmap import driver

    monkeypatch.setattr(driver, "solve", lambda *_, **__: accident())
    assert cli.run(["solve", str(folder / "grid.h5"), "--method", "bcd"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"tightmap: {words}") and err.count("\n") == 1


def test_memory_that_really_runs_out(folder, monkeypatch, capsys):
    """A kernel that asks for more than any machine has: one sentence, whatever Numba makes of it."""
    import numba

    from tightmap import driver

    @numba.njit
    def kernel(n):
        return np.ones(n).sum()

    monkeypatch.setattr(driver, "solve", lambda *_, **__: kernel(1 << 57))
    assert cli.run(["solve", str(folder / "grid.h5"), "--method", "bcd", "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "memory" in err and err.count("\n") == 1 and "Traceback" not in err


def test_tables_of_costs_in_a_uai_file(inside, tmp_path):
    file = tmp_path / "costs.uai"
    file.write_text("MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n0 0\n\n4\n3 1 2 4\n")
    run = inside("solve", file, "--quiet")
    assert run.returncode == 3 and "--values costs" in run.stderr and "Warning" not in run.stderr
    run = inside("solve", file, "--values", "costs", "--method", "exact")
    assert run.returncode == 0 and "energy       1" in run.stdout
    run = inside("convert", file, tmp_path / "same.npz", "--values", "cost")
    assert run.returncode == 0 and tm.read(tmp_path / "same.npz").energy([0, 1]) == 1.0
    run = inside("info", file, "--values", "prices")
    assert run.returncode == 2 and "potential" in run.stderr
    negative = tmp_path / "negative.uai"
    negative.write_text("MARKOV\n1\n2\n1\n1 0\n\n2\n-1 2\n")
    assert "--values costs" in inside("info", negative).stderr
