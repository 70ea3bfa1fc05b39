"""Whitespace-separated tokens, parsed in bulk, with the line and the byte of every one of them for messages.

All numbers of a file are parsed in one call of NumPy; a token that is not a number is NaN in ``values`` (legal only
where a reader asks for a word).  The readers then walk over arrays instead of over strings.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.runtime.memory import require

_SPACE = np.zeros(256, dtype=bool)
_SPACE[list(b" \t\n\r\x0b\x0c")] = True
_NUMBER = re.compile(rb"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?)", re.IGNORECASE)
# a token with a character that no finite number has; possessive, and only at the start of a token: no backtracking
_WORD = re.compile(rb"(?<!\S)[0-9eE+.-]*+[^\s0-9eE+.-]\S*")
_CHUNK = 1 << 16
_PIECE = 1 << 20  # bytes looked at together
_TOGETHER = 4096  # tokens parsed together


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
        if comment and comment in data:
            data = _blank_comments(data, comment)
        self.data = data
        self.starts = _token_starts(data)
        self.at = 0
        require(8.0 * len(self), f"a file of {len(self)} tokens")
        self.values: FloatArray = np.full(len(self.starts), np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # older NumPy versions only warn about what they cannot parse
            for low in range(words, len(self), _TOGETHER):
                self._parse(low, min(low + _TOGETHER, len(self)), mixed)

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, index: int) -> bytes:
        """The characters of a token."""
        return self._between(index, index + 1).split()[0]

    def _between(self, low: int, high: int) -> bytes:
        """Tokens low..high-1 and what stands behind them."""
        stop = int(self.starts[high]) if high < len(self) else len(self.data)
        return self.data[int(self.starts[low]) : stop]

    def _parse(self, low: int, high: int, mixed: bool) -> None:
        """Put the numbers low..high-1 into ``values``."""
        data = self._between(low, high)
        found = _floats(data, high - low)
        if found is None and mixed and b"inf" not in data.lower():
            found = _floats(_WORD.sub(b"nan", data), high - low)
        if found is not None and (mixed or not np.isnan(found).any()):
            self.values[low:high] = found
            return
        for i in range(low, high):  # one by one, to find the one that is no number
            token = self.text(i)
            if _NUMBER.fullmatch(token):
                self.values[i] = float(token)
            elif not mixed:
                self.fail(i, "a number")

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
            got = printable(self.text(index))
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


def printable(text: bytes) -> str:
    """Some bytes of a file for a message: in quotes, not too long, without characters that move the cursor."""
    return f"'{ascii(text[:40].decode('latin-1'))[1:-1]}'"


def _blank_comments(data: bytes, comment: bytes) -> bytes:
    """Comments replaced by blanks of the same length, which keeps every position."""
    plain = bytearray(data)
    view = np.frombuffer(plain, dtype=np.uint8)
    inside = False  # whether the last byte before this piece was part of a comment
    for low in range(0, len(view), _PIECE):
        piece = view[low : low + _PIECE]
        place = np.arange(len(piece), dtype=np.int32)
        begun = np.maximum.accumulate(np.where(piece == comment[0], place, -1))
        ended = np.maximum.accumulate(np.where(piece == ord("\n"), place, -1))
        mine = (begun > ended) | ((ended < 0) & inside)
        piece[mine] = ord(" ")
        inside = bool(mine[-1])
    return bytes(plain)


def _token_starts(data: bytes) -> npt.NDArray[np.int32]:
    """Where every token starts; content is below 2 GiB."""
    every = np.frombuffer(data, dtype=np.uint8)
    parts = []
    before = True  # whether the last byte before this piece was a blank
    for low in range(0, len(every), _PIECE):
        space = _SPACE[every[low : low + _PIECE]]
        begins = ~space
        begins[1:] &= space[:-1]
        begins[0] &= before
        parts.append((np.flatnonzero(begins) + low).astype(np.int32))
        before = bool(space[-1])
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32)


def _floats(data: bytes, number: int) -> FloatArray | None:
    """All of these tokens as numbers, or None when one of them is something else (warnings must be errors)."""
    try:
        values = np.fromstring(data, dtype=np.float64, sep=" ")
    except (ValueError, DeprecationWarning):
        return None
    return values if len(values) == number else None


def chase(values: npt.NDArray[Any], at: int, number: int, offset: int = 0) -> tuple[IntArray, IntArray, int]:
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
