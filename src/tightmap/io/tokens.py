"""Whitespace-separated tokens, parsed in bulk, with the line and the byte of every one of them for messages.

All numbers of a file are parsed in one call of NumPy; a token that is not a number is NaN in ``values`` (legal only
where a reader asks for a word).  The readers then walk over arrays instead of over strings.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graph import FloatArray, IntArray

_SPACE = np.zeros(256, dtype=bool)
_SPACE[list(b" \t\n\r\x0b\x0c")] = True
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?)", re.IGNORECASE)
_CHUNK = 1 << 16


class Tokens:
    """A cursor ``at`` over the tokens of a file.

    Parameters
    ----------
    data : the bytes of the file.
    words : how many tokens at the beginning are words; they are not parsed as numbers.
    comment : a byte that starts a comment to the end of the line.
    mixed : words may stand among the numbers (they become NaN).
    """

    def __init__(self, data: bytes, words: int = 0, comment: bytes = b"", mixed: bool = False) -> None:
        if comment and comment in data:  # blanks of the same length keep every position
            data = re.sub(re.escape(comment) + rb"[^\n]*", lambda m: b" " * len(m[0]), data)
        self.data = data
        space = _SPACE[np.frombuffer(data, dtype=np.uint8)]
        before = np.concatenate(([True], space[:-1])) if len(space) else space
        self.starts: IntArray = np.flatnonzero(before & ~space)
        self.at = 0
        self.values: FloatArray = np.full(len(self.starts), np.nan)
        if len(self) > words:
            self.values[words:] = self._parse(words, mixed)

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, index: int) -> bytes:
        """The characters of a token."""
        start = int(self.starts[index])
        stop = int(self.starts[index + 1]) if index + 1 < len(self) else len(self.data)
        return self.data[start:stop].split()[0]

    def _parse(self, words: int, mixed: bool) -> FloatArray:
        values = self._bulk(words, len(self))
        if values is not None:
            return values
        # some token is no number: only the pieces that hold such tokens are looked at one by one
        values = np.full(len(self) - words, np.nan)
        for low in range(words, len(self), 4096):
            high = min(low + 4096, len(self))
            piece = self._bulk(low, high)
            if piece is not None:
                values[low - words : high - words] = piece
                continue
            for i in range(low, high):
                token = self.text(i)
                if _NUMBER.fullmatch(token):
                    values[i - words] = float(token)
                elif not mixed:
                    self.fail(i, "a number")
        return values

    def _bulk(self, low: int, high: int) -> FloatArray | None:
        """Tokens low..high-1 as numbers, or None when one of them is something else."""
        stop = int(self.starts[high]) if high < len(self) else len(self.data)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # older NumPy versions only warn about what they cannot parse
            try:
                values = np.fromstring(self.data[int(self.starts[low]) : stop], dtype=np.float64, sep=" ")
            except (ValueError, DeprecationWarning):
                return None
        return values if len(values) == high - low and not np.isnan(values).any() else None

    # ------------------------------------------------------------------ errors

    def fail(self, index: int, expected: str, got: str | None = None) -> None:
        """Raise the one error of this file: where, what was expected, what is there."""
        if index >= len(self):
            raise ModelError(
                f"token {len(self) + 1} (line {self._line(len(self.data))}, byte {len(self.data)}): "
                f"expected {expected}, got the end of the file"
            )
        start = int(self.starts[index])
        if got is None:
            shown = self.text(index)[:40].decode("ascii", "backslashreplace")
            got = f"'{shown}'"
        raise ModelError(f"token {index + 1} (line {self._line(start)}, byte {start}): expected {expected}, got {got}")

    def _line(self, byte: int) -> int:
        return self.data.count(b"\n", 0, byte) + 1

    # ------------------------------------------------------------------ reading

    def word(self, expected: str) -> str:
        if self.at >= len(self):
            self.fail(self.at, expected)
        self.at += 1
        return self.text(self.at - 1).decode("utf-8", "backslashreplace")

    def integer(self, what: str, low: int = 0, high: int = 2**53) -> int:
        return int(self.integers(1, what, low, high)[0])

    def count(self, what: str, each: int = 1) -> int:
        """A number of things that follow, each of at least ``each`` tokens: never more than the file can hold."""
        number = self.integer(what)
        rest = len(self) - self.at
        if number * each > rest:
            self.fail(self.at - 1, f"{what}, with only {rest} tokens to follow", str(number))
        return number

    def integers(self, number: int, what: str, low: int = 0, high: int = 2**53) -> IntArray:
        values = self.numbers(number, what)
        with np.errstate(invalid="ignore"):
            good = (values >= low) & (values <= high) & (np.floor(values) == values)
        if not good.all():
            bounds = f"in {low}..{high}" if high < 2**53 else f"of at least {low}"
            self.fail(self.at - number + int(np.argmin(good)), f"{what} (an integer {bounds})")
        return values.astype(np.int64)

    def numbers(self, number: int, what: str) -> FloatArray:
        """The next numbers, as a view; +-inf is allowed, a word is not."""
        if self.at + number > len(self):
            self.at = len(self)
            self.fail(self.at, what)
        values = self.values[self.at : self.at + number]
        if np.isnan(values).any():
            self.fail(self.at + int(np.argmax(np.isnan(values))), what)
        self.at += number
        return values

    def records(self, number: int, what: str) -> tuple[IntArray, IntArray]:
        """Starts and lengths of records ``length item item ...`` that follow each other; moves behind the last."""
        starts, lengths, self.at = chase(self.values, self.at, number)
        if len(starts) < number:
            length = self.values[self.at] if self.at < len(self) else -1.0
            if length > 0 and length == np.floor(length):
                rest = f"only {len(self) - self.at - 1} tokens before the end of the file"
                self.fail(self.at, f"{what} {len(starts)}: {length:.0f} items to follow", rest)
            self.fail(self.at, f"{what} {len(starts)}: a number of items")
        return starts + 1, lengths

    def end(self) -> None:
        """Everything must have been read."""
        if self.at < len(self):
            self.fail(self.at, "the end of the file")


def chase(values: npt.NDArray, at: int, number: int, offset: int = 0) -> tuple[IntArray, IntArray, int]:
    """Walk over ``number`` records of ``offset`` items, a length and that many more items.

    Returns the starts, the lengths and the place behind the last.  A length that is no integer, or that leads beyond
    the end, stops the walk: fewer records come back and the place is that of the bad length.
    """
    starts: list[int] = []
    lengths: list[int] = []
    total = len(values)
    base, chunk = at, values[at : at + _CHUNK].tolist()
    for _ in range(number):
        place = at + offset
        if place >= total:
            at = total
            break
        if place - base >= len(chunk):
            base, chunk = place, values[place : place + _CHUNK].tolist()
        length = chunk[place - base]
        if not 0 <= length < total - place or length != int(length):
            at = place
            break
        starts.append(at)
        lengths.append(int(length))
        at = place + 1 + int(length)
    return np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64), at


def group_rows(rows: npt.NDArray[np.integer]) -> list[tuple[tuple[int, ...], IntArray]]:
    """Equal rows of (m, k): a list of (row, indices where it stands), in the order of first appearance."""
    m, k = rows.shape
    if m == 0:
        return []
    if k == 0 or (rows == rows[0]).all():
        return [(tuple(rows[0].tolist()), np.arange(m))]
    low, high = int(rows.min()), int(rows.max())
    if (high - low + 1) ** k < 2**62:  # one integer key is far quicker to sort than rows
        keys = np.zeros(m, dtype=np.int64)
        for p in range(k):
            keys = keys * (high - low + 1) + (rows[:, p].astype(np.int64) - low)
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    parts: Sequence[IntArray] = np.split(order, np.cumsum(np.bincount(inverse))[:-1])
    groups = [(tuple(rows[f].tolist()), part) for f, part in zip(first, parts, strict=True)]
    return sorted(groups, key=lambda g: int(g[1][0]))
