"""A folder that remembers results: a run that was killed goes on where it was, and nothing is solved twice.

``journal`` is only ever appended to, one line per result: a checksum, a blank, and a JSON object.  A line that a crash
has torn, or that anything else has changed, does not fit its checksum and is passed over; its model is solved again.
Lines reach the system as soon as a result is there, so that not even SIGKILL loses one, and the disk each second.
Only results are kept: a model that gave an error is tried again.

Two runs in one folder at a time would both solve everything: the second one is refused (by a lock that the system
releases with the process, where it has such locks).
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from tightmap.errors import ModelError, OptionError
from tightmap.many.tasks import Task
from tightmap.result import Result

JOURNAL = "journal"
HEAD = b"tightmap results 1\n"
SUM = 16  # hexadecimal digits
SYNC = 1.0  # seconds between two moments at which everything is on the disk

logger = logging.getLogger("tightmap")


class Checkpoint:
    """The results in a folder, found by the fingerprint of their task."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not isinstance(folder, str | os.PathLike) or isinstance(os.fspath(folder), bytes):
            raise OptionError(f"checkpoint: expected the path of a folder, got {folder!r}")
        self.path = Path(folder) / JOURNAL
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        self._places: dict[str, tuple[int, int]] = {}  # of the latest line of every task
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(self.path, "ab+")  # noqa: SIM115  closed by close()
        except OSError as error:
            raise OptionError(f"checkpoint {folder}: cannot be used ({error.strerror or error})") from None
        except ValueError as error:  # a null character
            raise OptionError(f"checkpoint {str(folder)!a}: cannot be used ({error})") from None
        try:
            self._claim()
            self._scan()
        except BaseException:
            self._file.close()
            raise

    def find(self, key: str) -> Result | None:
        """The result of the task with this fingerprint, if there is one."""
        place = self._places.get(key)
        if place is None:
            return None
        with self._lock:
            self._file.seek(place[0])
            record = _checked(self._file.read(place[1]))
        return None if record is None else _unpacked(record["result"])

    def record(self, task: Task, result: Result) -> None:
        """Keep a result."""
        content = json.dumps({"task": task.key, "index": task.index, "result": _packed(result)}).encode()
        line = _sum(content) + b" " + content + b"\n"
        try:
            with self._lock:
                begin = self._file.seek(0, os.SEEK_END)
                self._file.write(line)
                self._file.flush()
                self._places[task.key] = begin, len(line)
                if time.monotonic() - self._synced >= SYNC:
                    self._sync()
        except OSError as error:
            raise ModelError(f"checkpoint {self.path}: cannot be written ({error.strerror or error})") from None

    def close(self) -> None:
        with self._lock, suppress(OSError, ValueError):
            self._sync()
            self._file.close()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def _claim(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks here
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OptionError(f"checkpoint {self.path.parent}: another run is using it") from None
        except OSError:  # a file system without locks
            return

    def _scan(self) -> None:
        """Read what there is; whatever is torn at the end is closed off, so that the next line is a line of its own."""
        file = self._file
        file.seek(0)
        head = file.read(len(HEAD))
        if head != HEAD:
            if not HEAD.startswith(head):
                raise OptionError(f"checkpoint {self.path}: this is something else, nothing is written to it")
            file.truncate(0)  # new, or the very first write was torn
            file.write(HEAD)
            file.flush()
            return
        begin, line, torn = len(HEAD), b"\n", 0
        for line in file:
            record = _checked(line)
            if record is None:
                torn += 1
            else:
                self._places[record["task"]] = begin, len(line)
            begin += len(line)
        if not line.endswith(b"\n"):
            file.write(b"\n")
            file.flush()
        if torn:
            logger.warning("checkpoint %s: %d torn lines are passed over", self.path, torn)


def _sum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=SUM // 2).hexdigest().encode()


def _checked(line: bytes) -> dict[str, Any] | None:
    """The record of a line, None where it is not what was written."""
    content = line[SUM + 1 : -1]
    if not line.endswith(b"\n") or line[: SUM + 1] != _sum(content) + b" ":
        return None
    record: dict[str, Any] = json.loads(content)
    return record


def _packed(result: Result) -> dict[str, Any]:
    """As Result.to_dict, with the labels in few bytes."""
    labels = result.labels.astype(np.min_scalar_type(int(result.labels.max(initial=0))))
    small = base64.b85encode(zlib.compress(labels.tobytes(), 1)).decode()
    return result.to_dict(labels=False) | {"labels": [labels.dtype.str, small]}


def _unpacked(record: dict[str, Any]) -> Result:
    kind, small = record["labels"]
    labels = np.frombuffer(zlib.decompress(base64.b85decode(small)), dtype=np.dtype(kind))
    return Result.from_dict(record | {"labels": labels})
