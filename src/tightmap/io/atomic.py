"""Write a file completely or not at all: into a temporary file in the same folder, then rename it over the old one."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, cast

from tightmap.errors import ModelError
from tightmap.runtime.interruption import unfinished

COMPRESSED = {".gz", ".bz2", ".xz"}
PROBE = bytes(4096)  # one block: a full disk takes empty files


def _compressor(raw: IO[bytes], suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return cast(
            IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
        )  # the same input, same bytes
    if suffix == ".bz2":
        return bz2.BZ2File(raw, "wb")
    return cast(IO[bytes], lzma.LZMAFile(raw, "wb"))


def _is_direct(path: str | os.PathLike[str]) -> bool:
    """Pipes, devices, and the names of open streams, which a renamed file would not reach."""
    if os.path.exists(path) and not os.path.isfile(path):
        return True
    return os.path.abspath(path).startswith(("/dev/fd/", "/dev/std", "/proc/")) and os.path.exists(path)


def _place(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """The file that is meant, behind all links, and a name beside it that nobody uses."""
    target = Path(os.path.realpath(path))  # a link keeps pointing at the file that is replaced
    if target.is_dir():
        raise ModelError(f"{path}: cannot be written, it is a folder")
    if not target.parent.is_dir():
        raise ModelError(f"{path}: cannot be written, the folder {target.parent} does not exist")
    return target, target.with_name(f".tightmap-{secrets.token_hex(8)}.tmp")


@contextmanager
def _removed_in_the_end(place: Path) -> Iterator[None]:
    """Whatever happens, also when a signal ends the process, no file of this name is left."""
    unfinished.add(str(place))
    try:
        yield
    finally:
        place.unlink(missing_ok=True)
        unfinished.discard(str(place))


def _to_disk(raw: IO[bytes]) -> None:
    """Some file systems only say now that there is no room."""
    raw.flush()
    try:
        os.fsync(raw.fileno())
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # no such thing here
            raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that ``writing`` could not write to now, by trying; nothing is left behind."""
    try:
        if os.path.isdir(path) or not _is_direct(path):
            target, probe = _place(path)
            with suppress(FileNotFoundError):
                os.lstat(target)  # a name that is too long is an error here
            with _removed_in_the_end(probe), open(probe, "xb") as raw:
                raw.write(PROBE)
        elif not os.access(path, os.W_OK):  # opening a pipe would start a conversation
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from None


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary stream that becomes the file ``path`` when the block ends well, and leaves no trace when it does not.

    The suffixes .gz, .bz2 and .xz compress.  What is not a regular file (a pipe, /dev/stdout) is written directly.
    """
    if "\0" in os.fsdecode(path):
        raise ModelError(f"{os.fsdecode(path)!a}: cannot be written (embedded null byte)")
    try:
        direct = _is_direct(path) and not os.path.isdir(path)
        target, place = (Path(path), Path(path)) if direct else _place(path)
        with nullcontext() if direct else _removed_in_the_end(place):
            # a stream is appended to: it may be a file that others have begun
            with open(place, "ab" if direct else "xb") as raw:
                if Path(path).suffix.lower() in COMPRESSED:
                    with _compressor(raw, Path(path).suffix.lower()) as stream:
                        yield stream
                else:
                    yield raw
                if not direct:
                    _to_disk(raw)
            if not direct:
                os.replace(place, target)
    except OSError as error:
        raise ModelError(f"{path}: cannot be written ({error.strerror or error})") from None
