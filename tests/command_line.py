"""The command line as tests start it: as a process, with its outputs, and what has to be true of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tightmap as tm

FILES = ("r.json", "l.txt", "t.csv", "p.png")


def tightmap(*args, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "tightmap.cli.main", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        **kwargs,
    )


def tightmap_to(stdout, *args):
    """With another standard output than a pipe that is read."""
    command = [sys.executable, "-m", "tightmap.cli.main", *map(str, args)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def said(err):
    """Standard error without the line by which a command says that it has to compile: whether it has, is no matter."""
    return "".join(line for line in err.splitlines(keepends=True) if "compiling kernels, first run only" not in line)


def start(arguments, folder, code=None, **environment):
    """The command as a process of its own, with Ctrl-C as in a terminal; returns when it handles its signals.

    Before that, in the first hundredths of a second, it is Python that a signal ends.
    """
    command = [sys.executable, *(["-m", "tightmap.cli.main"] if code is None else ["-c", code]), *arguments]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    patience = time.monotonic() + 60.0
    while time.monotonic() < patience and not _handles(process.pid, signal.SIGTERM):
        time.sleep(0.01)
    return process


def _handles(pid, number):
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True  # nothing to be learned here
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def assert_one_sentence(run, *words):
    """Exit code 2, something on stderr that names the trouble, and no traceback."""
    assert run.returncode == 2, run.stderr
    assert "Traceback" not in run.stderr and run.stdout == ""
    for word in words:
        assert word in run.stderr
    assert run.stderr.startswith("tightmap: ") and run.stderr.count("\n") == 1


def outputs(folder):
    """The options that ask for every file."""
    options = zip(("--json", "--labels", "--trace", "--plot"), FILES, strict=True)
    return [word for option, name in options for word in (option, str(folder / name))]


def assert_complete(folder, model_path, names=FILES):
    """Exactly these files are there, each complete, and nothing temporary."""
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)
    if "r.json" in names:
        record = json.loads((folder / "r.json").read_text())
        model = tm.read(model_path)
        assert model.energy(np.array(record["labels"])) == pytest.approx(record["energy"])
    if "l.txt" in names:
        assert len(tm.read_labels(folder / "l.txt")) == 144
    if "t.csv" in names:
        assert (folder / "t.csv").read_text().startswith("iteration,elapsed,energy,lower_bound")
    if "p.png" in names:
        assert (folder / "p.png").read_bytes().endswith(b"IEND\xaeB`\x82")


def processes_of(mark):
    """Processes that carry a mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"TIGHTMAP_TEST={mark}\0".encode() in (path / "environ").read_bytes():
                found.append(path.name)
    return found
