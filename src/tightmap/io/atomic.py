"""Write a file completely or not at all: into a temporary file in the same folder, then rename it over the old one."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from tightmap.errors import ModelError

COMPRESSED = {".gz", ".bz2", ".xz"}


def _compressor(raw: IO[bytes], suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return cast(
            IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
        )  # the same input, same bytes
    if suffix == ".bz2":
        return bz2.BZ2File(raw, "wb")
    return cast(IO[bytes], lzma.LZMAFile(raw, "wb"))


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary stream that becomes the file ``path`` when the block ends well, and leaves no trace when it does not.

    The suffixes .gz, .bz2 and .xz compress.  What is not a regular file (a pipe, /dev/stdout) is written directly.
    """
    target = Path(os.path.realpath(path))  # a link keeps pointing at the file that is replaced
    direct = target.exists() and not target.is_file()
    place = target if direct else target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        if target.is_dir():
            raise ModelError(f"{path}: cannot be written, it is a folder")
        if not target.parent.is_dir():
            raise ModelError(f"{path}: cannot be written, the folder {target.parent} does not exist")
        try:
            with open(place, "wb" if direct else "xb") as raw:
                if Path(path).suffix.lower() in COMPRESSED:
                    with _compressor(raw, Path(path).suffix.lower()) as stream:
                        yield stream
                else:
                    yield raw
            if not direct:
                os.replace(place, target)
        except BaseException:
            if not direct:
                place.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from None
