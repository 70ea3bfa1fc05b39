"""The command line as a person or a script meets it: exit codes, sentences, JSON, interruption."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model


def tightmap(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "tightmap.cli", *map(str, args)], capture_output=True, text=True, check=False, **kwargs
    )


def assert_one_sentence(run, *words):
    """Exit code 2, something on stderr that names the trouble, and no traceback."""
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr and run.stdout == ""
    for word in words:
        assert word in run.stderr
    assert run.stderr.startswith("tightmap: ") and run.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    tm.write(grid_model(np.random.default_rng(0), 5, 6, 3), path / "grid.h5")
    hard = tm.Model([2, 2])
    hard.add_factors([[0, 1]], np.full((2, 2), np.inf))
    tm.write(hard, path / "infeasible.npz")
    tm.write(grid_model(np.random.default_rng(1), 60, 60, 4), path / "long.npz")
    return path


def test_help_is_quick_and_imports_no_compiler():
    code = "import sys; from tightmap.cli import app; from typer.main import get_command; get_command(app); "
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
    assert len(rows) == record["iterations"] and float(rows[-1]["energy"]) == pytest.approx(record["energy"])
    warm = tightmap("solve", folder / "grid.h5", "--method", "bcd", "--init", tmp_path / "l.txt", "--json", "-")
    assert json.loads(warm.stdout)["energy"] <= record["energy"]


def test_info_convert_methods(folder, tmp_path):
    run = tightmap("info", folder / "grid.h5", "--json", "-")
    facts = json.loads(run.stdout)
    assert facts["variables"] == 30 and facts["groups"][0]["kind"] == "potts"
    assert "Potts" in tightmap("info", folder / "grid.h5").stdout
    assert tightmap("convert", folder / "grid.h5", tmp_path / "g.uai").returncode == 0
    x = np.zeros(30, dtype=np.int64)
    assert tm.read(tmp_path / "g.uai").energy(x) == pytest.approx(tm.read(folder / "grid.h5").energy(x))
    assert "bcd" in tightmap("methods").stdout
    assert "bcd" in [row["name"] for row in json.loads(tightmap("methods", "--json", "-").stdout)]


def test_compile_prepares_methods():
    done = tightmap("compile", "--method", "bcd", "--method", "qpbo", "--processes", "1")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["bcd", "qpbo"]
    assert all(float(line.split()[1]) >= 0 for line in done.stdout.splitlines())
    wrong = tightmap("compile", "--method", "nothing")
    assert_one_sentence(wrong, "nothing", "bcd")


def test_infeasible_has_its_own_exit_code(folder):
    run = tightmap("solve", folder / "infeasible.npz", "--method", "bcd", "--json", "-")
    assert run.returncode == 3
    record = json.loads(run.stdout)
    assert record["status"] == "INFEASIBLE" and record["energy"] is None and record["feasible"] is False


def test_evidence(folder, tmp_path):
    (tmp_path / "e.evid").write_text("2 0 1 7 2\n")
    run = tightmap("solve", folder / "grid.h5", "--method", "bcd", "--evidence", tmp_path / "e.evid", "--json", "-")
    labels = json.loads(run.stdout)["labels"]
    assert labels[0] == 1 and labels[7] == 2


def test_bad_input_is_one_sentence(folder, tmp_path):
    whole = (folder / "grid.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    assert_one_sentence(tightmap("info", tmp_path / "cut.h5"), "cut.h5")
    (tmp_path / "huge.uai").write_text("MARKOV\n1000000000000\n2 2\n")
    assert_one_sentence(tightmap("info", tmp_path / "huge.uai"), "huge.uai")
    (tmp_path / "nan.uai").write_text("MARKOV\n1\n2\n1\n1 0\n2 nan 1\n")
    assert_one_sentence(tightmap("info", tmp_path / "nan.uai"), "nan.uai")
    (tmp_path / "index.uai").write_text("MARKOV\n1\n2\n1\n1 4\n2 1 1\n")
    assert_one_sentence(tightmap("info", tmp_path / "index.uai"), "index.uai")
    assert_one_sentence(tightmap("solve", folder / "grid.h5", "--method", "nosuch"), "nosuch", "bcd")
    assert_one_sentence(
        tightmap("solve", folder / "grid.h5", "--method", "bcd", "--option", "rhoo=1"), "rhoo", "restarts"
    )
    assert_one_sentence(tightmap("solve", folder / "grid.h5", "--option", "novalue"), "KEY=VALUE")
    assert_one_sentence(tightmap("solve", tmp_path / "absent.h5"), "absent.h5")
    assert_one_sentence(tightmap("info", tmp_path), tmp_path.name)
    run = tightmap("solve", folder / "grid.h5", "--time-limit", "soon")
    assert run.returncode == 2 and "Traceback" not in run.stderr
    before = sorted(p.name for p in tmp_path.iterdir())
    run = tightmap("convert", folder / "grid.h5", tmp_path / "out.nosuch")
    assert run.returncode == 2 and sorted(p.name for p in tmp_path.iterdir()) == before


def listen_to_interrupts():
    """A background job starts its children with SIGINT ignored; a person's shell does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_writes_the_best_so_far(folder, tmp_path):
    target = tmp_path / "r.json"
    command = [sys.executable, "-m", "tightmap.cli", "solve", str(folder / "long.npz"), "--method", "bcd"]
    command += ["--option", "restarts=100000000", "--json", str(target)]
    for patience in (3.0, 10.0, 30.0, 90.0):  # imports and compilation come first; how long depends on the machine
        run = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_interrupts
        )
        time.sleep(patience)
        run.send_signal(signal.SIGINT)
        try:
            _, err = run.communicate(timeout=120)
        finally:
            run.kill()
        assert run.returncode == 130, err
        assert "Traceback" not in err
        if target.exists():
            break
    record = json.loads(target.read_text())
    assert record["status"] == "INTERRUPTED"
    model = tm.read(folder / "long.npz")
    assert model.energy(np.array(record["labels"])) == pytest.approx(record["energy"])
