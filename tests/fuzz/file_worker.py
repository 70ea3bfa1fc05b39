"""A child that reads files and says what came of it; the script that files.py starts.

One line of JSON in, [kind, path, options], one line of JSON out, [outcome, reason, seconds].  A reader has to give a
model whose graph can be made, or one ModelError of one line that names the file; in little time and little memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from types import FrameType

import numpy as np

import tightmap as tm
from tightmap import io as tio

SECONDS = 5.0  # of processor time for one file
MEMORY = 2 << 30  # bytes beyond what the process has when it starts


class TimeUp(BaseException):
    """Reading took too long."""


def limit_memory() -> None:
    """Fail an allocation that leads far beyond what the process has now, where the system can do that."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def attempt(kind: str, path: str, options: dict[str, object]) -> tuple[str, str]:
    """("read" or "refused", "") when all is as promised, else ("failure", why)."""
    try:
        if kind == "labels":
            tm.read_labels(path)
        elif kind == "evidence":
            tio.read_evidence(path)
        else:
            model = tm.read(path, **options)
            # costs near the largest number overflow when a graph is made of them, which is not a reader's business
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                model.graph()
            except tm.ModelError as error:  # a model that is too large to be worked on: the message names no file
                return ("refused", "") if str(error).isprintable() else ("failure", "a message that cannot be printed")
            if np.isnan(model.energy(np.zeros(model.num_variables, dtype=np.int64))):
                return "failure", "the energy of a labelling is nan"
    except tm.ModelError as error:
        text = str(error)
        if not text.startswith(f"{path}: ") or not text.isprintable() or len(text) > 1000:
            return "failure", f"the message is not one line about the file: {text!a:.200}"
        if "does not fit in memory" in text:
            return "failure", f"more than {MEMORY} bytes were asked for"
        return "refused", ""
    return "read", ""


def guarded(kind: str, path: str, options: dict[str, object]) -> tuple[str, str]:
    """The same with a limit of time; every other exception, and every warning but ours, is a failure."""
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", tio.FormatWarning)
            return attempt(kind, path, options)
    except TimeUp:
        where = "unknown"
        for frame in traceback.extract_tb(sys.exc_info()[2]):
            where = f"{Path(frame.filename).name}:{frame.lineno}"
        return "failure", f"more than {SECONDS} s of processor time, at {where}"
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "tightmap" in f.filename] or [None]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames[-1] else "unknown"
        return "failure", f"{type(error).__name__} at {where}: {str(error)!a:.200}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def time_up(signum: int, frame: FrameType | None) -> None:
    raise TimeUp


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # whatever else is printed goes to standard error
    signal.signal(signal.SIGVTALRM, time_up)
    model = tm.Model([2, 2])  # load the kernels that make graphs before time and memory are counted
    model.add_potts([[0, 1]])
    model.graph()
    import h5py  # noqa: F401

    limit_memory()
    for line in sys.stdin:
        kind, path, options = json.loads(line)
        begin = time.process_time()
        outcome, reason = guarded(kind, path, options)
        answers.write(json.dumps([outcome, reason, time.process_time() - begin]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
