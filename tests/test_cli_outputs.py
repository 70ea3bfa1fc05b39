"""What commands write: checked before the work, one by one after it; full disks, closed streams, closed folders."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import tightmap as tm
from command_line import FILES, assert_complete, assert_one_sentence, outputs, tightmap, tightmap_to
from problems import grid_model
from tightmap.cli import main as cli
from tightmap.io import atomic
from tightmap.runtime import clock
from tightmap.view import plot as plots


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "grid.h5"
    tm.write(grid_model(np.random.default_rng(0), 12, 12, 3), path)
    return path


@pytest.fixture(autouse=True)
def quiet_compilation():
    """Commands that run inside of this process announce compilations; other tests do not expect that."""
    yield
    clock.announce_always(False)


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
        (["demo", "--output", "-"], ["--output -", "not written to standard output"]),
        (["bench", "smoke", "--out", "-"], ["--out -", "not written to standard output"]),
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
def test_bad_outputs_are_refused_before_the_work(model_path, tmp_path, monkeypatch, capsys, arguments, words):
    import tightmap.bench.runner
    import tightmap.demo
    import tightmap.io

    def too_late(*_, **__):
        pytest.fail("the work has begun")

    for place, name in ((tightmap.io, "read"), (tightmap.bench.runner, "execute"), (tightmap.demo, "prepare")):
        monkeypatch.setattr(place, name, too_late)
    (tmp_path / "grid.h5").write_bytes((model_path).read_bytes())
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


def test_empty_trace_gives_a_picture(model_path, tmp_path, capsys):
    """No time, and a model without factors: nothing is recorded, everything is written."""
    alone = tm.Model([2, 3])
    alone.add_unaries([[1.0, 0.0], [0.0, 1.0, 2.0]])
    tm.write(alone, tmp_path / "alone.npz")
    for model, more in ((tmp_path / "alone.npz", []), (model_path, ["--time-limit", "0"])):
        picture, record = tmp_path / f"{model.stem}.svg", tmp_path / f"{model.stem}.json"
        arguments = ["solve", str(model), "--method", "bcd", *more, "--plot", str(picture), "--json", str(record)]
        assert cli.run(arguments) == 0
        assert picture.read_text().startswith("<?xml") and json.loads(record.read_text())["iterations"] == 0
        assert "energy" in capsys.readouterr().out


def test_standard_output_carries_one_thing(model_path, tmp_path, capsys):
    """With - the summary goes to standard error, and nowhere when the user wants it quiet."""
    command = ["solve", str(model_path), "--method", "bcd"]
    assert cli.run([*command, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert "bcd: converged" in err
    assert cli.run([*command, "--labels", "-", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert list(map(int, out.split())) == record["labels"] and err == ""
    assert cli.run([*command, "--trace", "-"]) == 0
    assert capsys.readouterr().out.startswith("iteration,elapsed,energy,lower_bound")


def test_infinite_options_are_json(model_path, tmp_path, capsys):
    from tightmap.cli.solve_outputs import outcome

    result = replace(tm.solve(tm.read(model_path), "bcd"), options={"limit": float("inf"), "list": [1.5]})
    assert json.dumps(outcome(result, 0, 1)["options"]) == '{"limit": null, "list": [1.5]}'


# ---------------------------------------------------------------------- streams that are closed or full


def test_reader_that_went_away(model_path, tmp_path):
    """tightmap ... | head -0: quiet, the exit code of SIGPIPE, and the files are there."""
    for command in (["solve", model_path, "--method", "bcd", "--json", tmp_path / "r.json"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        run = tightmap_to(writer, *command)
        os.close(writer)
        assert (run.returncode, run.stderr) == (141, "")
    assert json.loads((tmp_path / "r.json").read_text())["method"] == "bcd"


def test_streams_that_are_closed(model_path, tmp_path):
    command = ["solve", model_path, "--method", "bcd", "--json"]
    run = tightmap(*command, tmp_path / "r.json", preexec_fn=lambda: [os.close(k) for k in (0, 1, 2)])
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert json.loads((tmp_path / "r.json").read_text())["method"] == "bcd"
    assert_one_sentence(tightmap(*command, "-", preexec_fn=lambda: os.close(1)), "--json -", "closed")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_standard_output_is_full(model_path, tmp_path):
    with open("/dev/full", "w") as full:
        run = tightmap_to(full, "solve", model_path, "--method", "bcd", "--json", tmp_path / "r.json")
        assert run.returncode == 2
        assert run.stderr == "tightmap: standard output: cannot be written (No space left on device)\n"
        assert json.loads((tmp_path / "r.json").read_text())["method"] == "bcd"
        run = tightmap_to(full, "--help")
        assert run.returncode == 2 and run.stderr.count("\n") == 1


def test_broken_standard_error_does_not_end_a_run(model_path, tmp_path, monkeypatch):
    class Broken(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Broken())
    arguments = ["--method", "bcd", "--json", "-", "--labels", str(tmp_path / "l.txt")]
    assert cli.run(["solve", str(model_path), *arguments]) == 0  # the summary has nowhere to go
    assert len(tm.read_labels(tmp_path / "l.txt")) == 144
    assert cli.run(["solve", "absent.h5"]) == 2


def test_names_that_cannot_be_printed(model_path, tmp_path, capsys):
    name = tmp_path / os.fsdecode(b"\xff.h5")
    try:
        name.write_bytes((model_path).read_bytes())
    except OSError:
        pytest.skip("file names are text here")
    run = tightmap("info", name, env=os.environ | {"PYTHONIOENCODING": "utf-8"})
    assert run.returncode == 0 and "144 variables" in run.stdout, run.stderr


# ---------------------------------------------------------------------- outputs that fail


@pytest.mark.parametrize("number", range(4))
def test_failed_output_leaves_the_others(model_path, tmp_path, monkeypatch, capsys, number):
    """The disk is full just when one of the files is written."""
    calls = []

    def fsync(_):
        calls.append(1)
        if len(calls) == number + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 2
    assert_complete(tmp_path, model_path, [f for f in FILES if f != FILES[number]])
    out, err = capsys.readouterr()
    option = ("--json", "--labels", "--trace", "--plot")[number]
    assert "bcd: converged" in out and err.count("\n") == 1
    assert err.startswith(f"tightmap: {option} {tmp_path / FILES[number]}: cannot be written (No space left")


def test_output_that_cannot_be_made_leaves_the_others(model_path, tmp_path, monkeypatch, capsys):
    def convergence(result):
        raise MemoryError

    monkeypatch.setattr(plots, "convergence", convergence)
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(tmp_path)]) == 2
    assert_complete(tmp_path, model_path, FILES[:3])
    out, err = capsys.readouterr()
    assert "bcd: converged" in out and "--plot" in err and "out of memory" in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
def test_full_device(model_path, tmp_path, capsys):
    arguments = ["--json", "/dev/full", "--labels", str(tmp_path / "l.txt")]
    assert cli.run(["solve", str(model_path), "--method", "bcd", *arguments]) == 2
    assert_complete(tmp_path, model_path, ["l.txt"])
    assert "--json /dev/full" in capsys.readouterr().err


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 KiB, and a way to mount it again with other options."""
    place = tmp_path / "small"
    place.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command here: no small disk")
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")

    mount("size=24k")
    yield place, mount
    subprocess.run(["umount", str(place)], check=False)


def test_full_disk(model_path, small_disk, capsys):
    place, _ = small_disk
    assert cli.run(["solve", str(model_path), "--method", "bcd", "--time-limit", "0", *outputs(place)]) == 2
    assert_complete(place, model_path, FILES[:3])  # there is room for all but the picture
    out, err = capsys.readouterr()
    assert "bcd: time limit" in out and "--plot" in err and "No space left on device" in err
    with suppress(OSError), open(place / "filling", "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert cli.run(["solve", str(model_path), "--method", "bcd", "--labels", str(place / "new.txt")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "--labels" in err and "No space left on device" in err  # before the run
    assert not (place / "new.txt").exists()


def test_read_only_disk(model_path, small_disk, capsys):
    place, mount = small_disk
    mount("remount,ro")
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(place)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Read-only file system" in err and err.count("\n") == 1


def test_folder_without_permission(model_path, tmp_path, capsys):
    place = tmp_path / "closed"
    place.mkdir()
    place.chmod(0o555)
    try:
        (place / "probe").touch()
    except PermissionError:
        pass
    else:
        pytest.skip("permissions of folders do not bind this user")
    assert cli.run(["solve", str(model_path), "--method", "bcd", *outputs(place)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Permission denied" in err
