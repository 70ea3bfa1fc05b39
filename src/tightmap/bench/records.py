"""Runs and their results: one JSON object per line, appended and never rewritten.

A line is complete once its newline is on the disk, so a benchmark that is interrupted loses at most the run that was
going on; a torn last line is skipped when reading and closed off when appending.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tightmap.errors import ModelError

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One method on one model.  ``source`` is empty for the built-in instances, else says what to read or build."""

    family: str
    instance: str
    method: str
    time_limit: float | None = None
    seed: int = 0
    threads: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)

    def key(self) -> str:
        """What makes two runs the same run."""
        from tightmap import __version__

        return json.dumps({**asdict(self), "version": __version__}, sort_keys=True)


def clean(value: Any) -> Any:
    """The value in strict JSON: numbers that are not finite become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean(v) for v in value]
    if hasattr(value, "item"):
        return clean(value.item())
    return value if isinstance(value, str | int | bool | None) else str(value)


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """All complete rows of a file, none when it does not exist; lines that are not JSON objects are passed over."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue  # torn by an interruption
        if isinstance(row, dict) and "key" in row:
            rows.append(row)
    return rows


def check_results_file(path: str | os.PathLike[str]) -> None:
    """Refuse to append to a file that cannot be appended to, or that is something else than rows."""
    if not os.path.exists(path):
        return
    if not os.path.isfile(path):
        raise ModelError(f"{path}: results are appended to a file, this is none")
    try:
        with open(path, "ab+") as file:
            file.seek(0)
            if file.read(1) not in (b"", b"{", b"\n"):
                raise ModelError(f"{path}: this is no file of results; nothing is appended to it")
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from None


def append_row(path: str | os.PathLike[str], row: Row) -> None:
    """Append one row and see it through to the disk."""
    line = json.dumps(clean(row), sort_keys=True, allow_nan=False) + "\n"
    try:
        with open(path, "ab+") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    line = "\n" + line
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from None


def latest(rows: list[Row]) -> dict[str, Row]:
    """The last row of every run."""
    return {row["key"]: row for row in rows}
