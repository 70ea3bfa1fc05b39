"""What a reader gets: the bytes of a file, decompressed, never more of them than the limit."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.io.atomic import COMPRESSED

MAX_BYTES = 2 << 30  # of one file after decompression, and of one array in it
MAX_LABELS = 1 << 28  # sum of the label counts of a model: its unary costs alone take 8 bytes each
MAX_ENTRIES = 50_000_000  # table entries that reading or writing may add by expanding structured factors


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

    @cached_property
    def data(self) -> bytes:
        """The whole content, decompressed."""
        content = self._read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ModelError(f"has more than {MAX_BYTES} bytes after decompression, the limit")
        return content

    def _read(self, number: int) -> bytes:
        opener: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(self.path.suffix.lower(), open)
        try:
            with cast(IO[bytes], opener(self.path, "rb")) as stream:
                return stream.read(number)
        except FileNotFoundError:
            raise ModelError("no such file") from None
        except IsADirectoryError:
            raise ModelError("this is a folder, expected a file") from None
        except (EOFError, zlib.error, lzma.LZMAError) as error:
            raise ModelError(f"the compressed data is damaged or cut short ({error})") from None
        except OSError as error:
            raise ModelError(f"cannot be read ({error.strerror or error})") from None
        except ValueError as error:  # a zero byte in the name
            raise ModelError(f"cannot be read ({error})") from None

    def stream(self) -> IO[bytes]:
        return io.BytesIO(self.data)


def check_labels(cards: npt.NDArray[Any], where: str) -> None:
    """Refuse label counts that no model could hold, before anything of that size is allocated."""
    if len(cards) and cards.min() < 1:
        i = int(np.argmax(cards < 1))
        raise ModelError(f"{where}: variable {i}: expected at least 1 label, got {int(cards[i])}")
    total = float(np.sum(cards, dtype=np.float64))
    if total > MAX_LABELS:
        raise ModelError(f"{where}: {total:.6g} labels in all, the limit is {MAX_LABELS}")


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
