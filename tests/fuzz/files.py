"""Mutated files for every reader: a model or one ModelError, in little time and little memory, whatever the bytes are.

The files are read in a child (file_worker.py), so that a crash of a library, a hang or an exhausted memory is a
failure like any other.  Case i of a seed is always the same file.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from .mutations import Seed, damaged, seeds

PATIENCE = 60.0  # seconds after which a child that does not answer is ended; its own limit is far shorter


class Child:
    """A process that reads files, started anew when it died."""

    def __init__(self) -> None:
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("file_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            text=True,
        )
        self.answers: queue.Queue[str] = queue.Queue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def read(self, kind: str, path: Path, options: dict[str, object]) -> tuple[str, str] | None:
        """(outcome, reason); None when the child is gone or had to be ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([kind, str(path), options]) + "\n")
            self.process.stdin.flush()
            answer = self.answers.get(timeout=PATIENCE)
        except (queue.Empty, OSError):
            return None
        if not answer:
            return None
        outcome, reason, _ = json.loads(answer)
        return outcome, reason

    def end(self) -> str:
        """End the process; what is known about how it went."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):  # what was written last may never have reached the child
            self.process.stdin.close()
        try:
            code: int | None = self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            code = None
            self.process.kill()
            self.process.wait()
        self.listener.join()
        self.process.stdout.close()
        self.errors.seek(0)
        said = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        self.errors.close()
        how = f"no answer within {PATIENCE:.0f} s" if code is None else f"the process ended with code {code}"
        return f"{how}: {said[-1]:.200}" if said else how


def make_case(found: dict[str, Seed], seed: int, case: int) -> tuple[str, bytes]:
    """The name of the format and the bytes of one case."""
    rng = np.random.default_rng([seed, case])
    names = list(found)
    name = names[case % len(names)]
    partner = found[names[int(rng.integers(len(names)))]]
    return name, damaged(found[name], partner.intact(), rng)


def fuzz_files(seconds: float, seed: int, out: Path, cases: int | None = None) -> dict[str, int]:
    """Read damaged files for some seconds, or exactly ``cases`` of them.

    Returns the number of files per format, how many were read and refused, and under ``failures`` how many broke a
    promise; these are written to ``out`` with the reason in a text file beside each.
    """
    found = seeds()
    counts: Counter[str] = Counter()
    failures = 0
    out = Path(out)
    folder = Path(tempfile.mkdtemp(prefix="tightmap-fuzz-"))
    child = Child()
    case = 0
    deadline = time.monotonic() + seconds
    try:
        while case < cases if cases is not None else time.monotonic() < deadline:
            name, data = make_case(found, seed, case)
            one = found[name]
            path = folder / ".".join(filter(None, [f"case{case}", one.suffix, one.packed]))
            path.write_bytes(data)
            answer = child.read(one.kind, path, one.options)
            if answer is None:
                answer = ("failure", child.end())
                child = Child()
            outcome, reason = answer
            counts[name] += 1
            if outcome == "failure":
                failures += 1
                out.mkdir(parents=True, exist_ok=True)
                target = out / f"files-{seed}-{case}-{path.name.split('.', 1)[1]}"
                shutil.copyfile(path, target.with_name(f"{target.name}.{path.name.split('.', 1)[1]}"))
                target.with_name(f"{target.name}.reason.txt").write_text(f"{reason}\n", encoding="utf-8")
            else:
                counts[f"({outcome})"] += 1
            path.unlink()
            case += 1
    finally:
        child.end()
        shutil.rmtree(folder, ignore_errors=True)
    return {**dict(sorted(counts.items())), "failures": failures}
