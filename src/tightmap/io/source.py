"""What a reader gets: the bytes of a file, decompressed, never more of them than the limit.

What a small file may make of itself is bounded here: how far it expands when it is unpacked, and how many labels it
declares without saying anything about them.  What is not a regular file (a pipe, a device) is never opened.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.io.atomic import COMPRESSED
from tightmap.runtime.lazy import lazy
from tightmap.runtime.memory import available_bytes, require

MAX_BYTES = 2 << 30  # of one file after decompression, and of one array in it
MAX_LABELS = 1 << 28  # sum of the label counts of a model: its unary costs alone take 8 bytes each
MAX_ENTRIES = 50_000_000  # table entries that reading or writing may add by expanding structured factors
MAX_ARITY = 127  # variables of a factor, as in Model
AXES = 30  # of a table, so that every release of NumPy can stack and index it; longer scopes drop single labels

SMALL_CONTENT = 64 << 20  # what any compressed file may expand to
EXPANSION = 500  # beyond that, at most so many times the packed size: repetitive tables reach 100 or 200
FEW_LABELS = 1 << 23  # what any file may declare without describing it
LABELS_PER_BYTE = 50  # a larger number needs content to go with it
_PIECE = 1 << 20


class FormatWarning(UserWarning):
    """A file that could be read, but says something odd: two layouts fit, or a count in its header is wrong."""


@dataclass(frozen=True)
class Source:
    """A file to read; ``suffix`` is the one that names the format, without a compression suffix."""

    path: Path

    @property
    def suffix(self) -> str:
        name = self.path
        if name.suffix.lower() in COMPRESSED:
            name = name.with_suffix("")
        return name.suffix.lower()

    @property
    def compressed(self) -> bool:
        return self.path.suffix.lower() in COMPRESSED

    def head(self, number: int) -> bytes:
        """The first bytes of the content."""
        return self._read(number)

    @lazy
    def data(self) -> bytes:
        """The whole content, decompressed."""
        size = self.file_size
        if not self.compressed:
            if size > MAX_BYTES:
                raise ModelError(f"has {size} bytes, the limit is {MAX_BYTES}")
            require(size, f"the content of {size} bytes")
            return _as_meant(self._read(size))
        most = min(MAX_BYTES, available_bytes() // 4)  # its pieces are joined at the end, and readers need room too
        content = self._read(most + 1)
        if len(content) > most:
            raise ModelError(f"{size} bytes expand to more than {most}, the limit on this machine")
        return _as_meant(content)

    @property
    def file_size(self) -> int:
        """Bytes on the disk; a ModelError for anything but a regular file, which could block or never end."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise ModelError("no such file") from None
        except OSError as error:
            raise ModelError(f"cannot be read ({error.strerror or error})") from None
        except ValueError as error:  # a zero byte in the name
            raise ModelError(f"cannot be read ({error})") from None
        if stat.S_ISDIR(found.st_mode):
            raise ModelError("this is a folder, expected a file")
        if not stat.S_ISREG(found.st_mode):
            kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
            kind = kinds.get(stat.S_IFMT(found.st_mode), "a device")
            raise ModelError(f"this is {kind}, expected a regular file")
        return found.st_size

    def _read(self, number: int) -> bytes:
        """At most ``number`` bytes of the content, taken in pieces: what is asked for is not what is allocated."""
        size = self.file_size
        pieces: list[bytes] = []
        done = 0
        try:
            with open(self.path, "rb") as raw, self._unpacked(raw) as stream:
                while done < number and (piece := stream.read(min(number - done, _PIECE))):
                    pieces.append(piece)
                    done += len(piece)
                    if self.compressed and done > max(SMALL_CONTENT, EXPANSION * raw.tell()):
                        raise ModelError(
                            f"the first {raw.tell()} of {size} bytes expand to {done}, more than {EXPANSION} times as "
                            "many; if that is meant, unpack the file first"
                        )
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise ModelError(f"the compressed data is damaged or cut short ({error})") from None
        except OSError as error:
            raise ModelError(f"cannot be read ({error.strerror or error})") from None
        return b"".join(pieces)

    def _unpacked(self, raw: IO[bytes]) -> IO[bytes]:
        suffix = self.path.suffix.lower()
        if suffix == ".gz":
            return cast(IO[bytes], gzip.GzipFile(fileobj=raw, mode="rb"))
        if suffix == ".bz2":
            return bz2.BZ2File(raw, "rb")
        if suffix == ".xz":  # the older format .lzma has no checksum: any 13 bytes would be a header of it
            return cast(IO[bytes], lzma.LZMAFile(raw, "rb", format=lzma.FORMAT_XZ))
        return raw

    def stream(self) -> IO[bytes]:
        return io.BytesIO(self.data)


_PACKED = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\x00": ".xz"}  # first bytes, and the suffix that unpacks


def _as_meant(content: bytes) -> bytes:
    """The content without the mark that some editors put before text; what a name has led astray is said in words."""
    for mark, suffix in _PACKED.items():
        if content.startswith(mark):
            raise ModelError(f"the content is compressed; the name must end in {suffix} for it to be unpacked")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ModelError("this is text in UTF-16, expected plain text or UTF-8")
    return content.removeprefix(b"\xef\xbb\xbf")


def check_labels(cards: npt.NDArray[Any], where: str, content: int) -> None:
    """Refuse label counts that no model could hold, or that ``content`` bytes only declare, before allocating."""
    if len(cards) and cards.min() < 1:
        i = int(np.argmax(cards < 1))
        raise ModelError(f"{where}: variable {i}: expected at least 1 label, got {int(cards[i])}")
    check_total(len(cards), float(np.sum(cards, dtype=np.float64)), where, content)


def check_total(variables: int, labels: float, where: str, content: int) -> None:
    """The same for a number of labels that is known without a list of them."""
    limit = min(MAX_LABELS, FEW_LABELS + LABELS_PER_BYTE * content)
    if labels > limit:
        raise ModelError(
            f"{where}: {variables} variables with {labels:.10g} labels in all, "
            f"the limit for {content} bytes of content is {limit}"
        )


def check_arity(arity: npt.NDArray[Any], what: str) -> None:
    """Refuse scopes that are too long for Model, before tables of so many axes are formed."""
    if len(arity) and arity.max() > MAX_ARITY:
        f = int(np.argmax(arity > MAX_ARITY))
        raise ModelError(f"{what} {f}: expected at most {MAX_ARITY} variables, got {int(arity[f])}")


def finite_sum(costs: npt.NDArray[Any], what: str) -> float:
    """The sum of finite costs; an infinite one would forbid everything, which none of them does."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(costs.sum())
    if not np.isfinite(total) and np.isfinite(costs).all():
        raise ModelError(f"{what} add up to more than a number can hold")
    return total


def check_entries(entries: float, what: str) -> None:
    """Refuse an expansion to dense tables that is too large."""
    if entries > MAX_ENTRIES:
        raise ModelError(
            f"{what} would need {entries:.6g} table entries, the limit is {MAX_ENTRIES}; "
            "the native format (.npz) keeps such factors as they are"
        )


def as_path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise ModelError(f"expected a path, got {type(path).__name__}") from None
