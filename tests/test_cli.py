"""The command line as a person or a script meets it: exit codes, sentences, JSON, interruption."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import tightmap as tm
from problems import grid_model
from tightmap import cli, clock


def tightmap(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "tightmap.cli", *map(str, args)], capture_output=True, text=True, check=False, **kwargs
    )


@pytest.fixture
def inside(capsys):
    """The same inside of this process, which is quicker."""

    def run(*args):
        code = cli.run([str(a) for a in args])
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return run


def tightmap_to(stdout, *args):
    """With another standard output than a pipe that is read."""
    command = [sys.executable, "-m", "tightmap.cli", *map(str, args)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


@pytest.fixture(autouse=True)
def quiet_compilation():
    """Commands that run inside of this process announce compilations; other tests do not expect that."""
    yield
    clock.announce_always(False)


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


def test_compile_prepares_methods():
    done = tightmap("compile", "--method", "bcd", "--method", "qpbo", "--processes", "1")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["bcd", "qpbo"]
    assert all(float(line.split()[1]) >= 0 for line in done.stdout.splitlines())
    wrong = tightmap("compile", "--method", "nothing")
    assert_one_sentence(wrong, "nothing", "bcd")


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
    assert_one_sentence(inside("solve", tmp_path / "absent.h5"), "absent.h5")
    assert_one_sentence(inside("info", tmp_path), tmp_path.name)
    run = inside("solve", folder / "grid.h5", "--time-limit", "soon")
    assert run.returncode == 2 and "Traceback" not in run.stderr
    before = sorted(p.name for p in tmp_path.iterdir())
    run = inside("convert", folder / "grid.h5", tmp_path / "out.nosuch")
    assert run.returncode == 2 and sorted(p.name for p in tmp_path.iterdir()) == before


# ---------------------------------------------------------------------- outputs are checked before the work


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "grid.h5", "--json", "nowhere/r.json"], ["--json nowhere/r.json", "nowhere does not exist"]),
        (["solve", "grid.h5", "--labels", "nowhere/l.txt"], ["--labels", "does not exist"]),
        (["solve", "grid.h5", "--trace", "nowhere/t.csv"], ["--trace", "does not exist"]),
        (["solve", "grid.h5", "--plot", "nowhere/p.png"], ["--plot", "does not exist"]),
        (["solve", "grid.h5", "--json", "."], ["--json .", "it is a folder"]),
        (["solve", "grid.h5", "--json", "a" * 300], ["--json", "File name too long"]),
        (["solve", "grid.h5", "--plot", "p.doc"], ["--plot p.doc", "png", "not doc"]),
        (["solve", "grid.h5", "--plot", "-"], ["--plot -", "not written to standard output"]),
        (["solve", "grid.h5", "--json", "same", "--labels", "./same"], ["--labels ./same", "--json names the same"]),
        (["solve", "grid.h5", "--json", "-", "--trace", "/dev/stdout"], ["--trace -", "--json names the same"]),
        (["solve", "grid.h5", "--json", "link.h5"], ["--json link.h5", "MODEL names the same file"]),
        (["solve", "grid.h5", "--evidence", "e.evid", "--labels", "e.evid"], ["--labels", "--evidence names the same"]),
        (["solve", "grid.h5", "--seed", "-1"], ["--seed must be at least 0, got -1"]),
        (["solve", "grid.h5", "--method", "nosuch"], ["nosuch", "bcd"]),
        (["info", "grid.h5", "--json", "nowhere/i.json"], ["--json", "does not exist"]),
        (["convert", "grid.h5", "nowhere/g.uai"], ["OUT nowhere/g.uai", "does not exist"]),
        (["convert", "grid.h5", "g.dd"], ["OUT g.dd", "not written as .dd files", ".uai"]),
        (["convert", "grid.h5", "g"], ["OUT g", "without a suffix"]),
        (["methods", "--json", "nowhere/m.json"], ["--json", "does not exist"]),
        (["demo", "--output", "nowhere/d.png"], ["--output", "does not exist"]),
        (["demo", "--output", "d.txt"], ["--output d.txt", "not txt"]),
        (["bench", "smoke", "--report", "nowhere/b.html"], ["--report", "does not exist"]),
        (["bench", "smoke", "--out", "nowhere/b.jsonl"], ["--out", "does not exist"]),
        (["bench", "smoke", "--out", "."], ["--out .", "it is a folder"]),
        (["bench", "smoke", "--out", "grid.h5"], ["--out grid.h5", "no file of results"]),
        (["bench", "smoke", "--out", "b", "--report", "b"], ["--report b", "--out names the same file"]),
        (["bench", "smoke", "--seed", "-1"], ["--seed must be at least 0"]),
    ],
    ids=lambda value: (
        " ".join(value)[:60] if value[0] in ("solve", "info", "convert", "methods", "demo", "bench") else ""
    ),
)
def test_bad_outputs_are_refused_before_the_work(folder, tmp_path, monkeypatch, capsys, arguments, words):
    import tightmap.bench.runner
    import tightmap.demo
    import tightmap.io

    def too_late(*_, **__):
        pytest.fail("the work has begun")

    for place, name in ((tightmap.io, "read"), (tightmap.bench.runner, "execute"), (tightmap.demo, "prepare")):
        monkeypatch.setattr(place, name, too_late)
    (tmp_path / "grid.h5").write_bytes((folder / "grid.h5").read_bytes())
    (tmp_path / "link.h5").symlink_to("grid.h5")
    (tmp_path / "e.evid").write_text("1 0 1\n")
    before = sorted(p.name for p in tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tightmap: ") and err.count("\n") == 1
    for word in words:
        assert word in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_empty_trace_gives_a_picture(folder, tmp_path, capsys):
    """No time, and a model without factors: nothing is recorded, everything is written."""
    alone = tm.Model([2, 3])
    alone.add_unaries([[1.0, 0.0], [0.0, 1.0, 2.0]])
    tm.write(alone, tmp_path / "alone.npz")
    for model, more in ((tmp_path / "alone.npz", []), (folder / "grid.h5", ["--time-limit", "0"])):
        picture, record = tmp_path / f"{model.stem}.svg", tmp_path / f"{model.stem}.json"
        arguments = ["solve", str(model), "--method", "bcd", *more, "--plot", str(picture), "--json", str(record)]
        assert cli.run(arguments) == 0
        assert picture.read_text().startswith("<?xml") and json.loads(record.read_text())["iterations"] == 0
        assert "energy" in capsys.readouterr().out


def test_standard_output_carries_one_thing(folder, tmp_path, capsys):
    """With - the summary goes to standard error, and nowhere when the user wants it quiet."""
    command = ["solve", str(folder / "grid.h5"), "--method", "bcd"]
    assert cli.run([*command, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert "bcd: converged" in err
    assert cli.run([*command, "--labels", "-", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert list(map(int, out.split())) == record["labels"] and err == ""
    assert cli.run([*command, "--trace", "-"]) == 0
    assert capsys.readouterr().out.startswith("iteration,elapsed,energy,lower_bound")


def test_infinite_options_are_json(folder, tmp_path, capsys):
    from tightmap.solve_outputs import outcome

    result = replace(tm.solve(tm.read(folder / "grid.h5"), "bcd"), options={"limit": float("inf"), "list": [1.5]})
    assert json.dumps(outcome(result, 0, 1)["options"]) == '{"limit": null, "list": [1.5]}'


# ---------------------------------------------------------------------- streams that are closed or full


def test_reader_that_went_away(folder, tmp_path):
    """tightmap ... | head -0: quiet, the exit code of SIGPIPE, and the files are there."""
    for command in (["solve", folder / "grid.h5", "--method", "bcd", "--json", tmp_path / "r.json"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        run = tightmap_to(writer, *command)
        os.close(writer)
        assert (run.returncode, run.stderr) == (141, "")
    assert json.loads((tmp_path / "r.json").read_text())["method"] == "bcd"


def test_streams_that_are_closed(folder, tmp_path):
    command = ["solve", folder / "grid.h5", "--method", "bcd", "--json"]
    run = tightmap(*command, tmp_path / "r.json", preexec_fn=lambda: [os.close(k) for k in (0, 1, 2)])
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert json.loads((tmp_path / "r.json").read_text())["method"] == "bcd"
    assert_one_sentence(tightmap(*command, "-", preexec_fn=lambda: os.close(1)), "--json -", "closed")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_standard_output_is_full(folder, tmp_path):
    with open("/dev/full", "w") as full:
        run = tightmap_to(full, "solve", folder / "grid.h5", "--method", "bcd", "--json", tmp_path / "r.json")
        assert run.returncode == 2
        assert run.stderr == "tightmap: standard output: cannot be written (No space left on device)\n"
        assert json.loads((tmp_path / "r.json").read_text())["method"] == "bcd"
        run = tightmap_to(full, "--help")
        assert run.returncode == 2 and run.stderr.count("\n") == 1


def test_broken_standard_error_does_not_end_a_run(folder, tmp_path, monkeypatch):
    class Broken(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Broken())
    arguments = ["--method", "bcd", "--json", "-", "--labels", str(tmp_path / "l.txt")]
    assert cli.run(["solve", str(folder / "grid.h5"), *arguments]) == 0  # the summary has nowhere to go
    assert len(tm.read_labels(tmp_path / "l.txt")) == 30
    assert cli.run(["solve", "absent.h5"]) == 2


def test_names_that_cannot_be_printed(folder, tmp_path, capsys):
    name = tmp_path / os.fsdecode(b"\xff.h5")
    try:
        name.write_bytes((folder / "grid.h5").read_bytes())
    except OSError:
        pytest.skip("file names are text here")
    run = tightmap("info", name, env=os.environ | {"PYTHONIOENCODING": "utf-8"})
    assert run.returncode == 0 and "30 variables" in run.stdout, run.stderr


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
