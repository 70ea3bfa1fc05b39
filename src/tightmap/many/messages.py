"""What this process and its workers say to each other: pickles whose large arrays lie in memory that both see.

A message is a header, the places of its arrays, the pickle, and the small arrays.  Large arrays (out-of-band buffers of
pickle protocol 5) are written to a file without a name that the worker has open as well: in memory where the system
has such files, so the worker maps what was written and nothing goes through a pipe.  A file without a name is gone when
the last process that has it open is gone, whatever ended it.

The worker may write to its arrays, which nobody else reads.  The next message to the same worker overwrites them, which
is why it is sent only after the answer to this one has come.  So the worker maps the file once, not for each message:
every page that is touched for the first time costs as much as solving some variables.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import tempfile
from typing import IO, Any

LARGE = 1 << 16  # bytes of an array from which on it is shared
ALIGNMENT = 64
HEADER = struct.Struct("<QQ")  # bytes of the pickle, number of arrays
PLACE = struct.Struct("<qQ")  # where an array begins in the file, -1 for one that follows; its bytes


def shared_file() -> int | None:
    """A file without a name, to be inherited by a worker; None where files are not inherited (Windows)."""
    if os.name != "posix":
        return None
    if hasattr(os, "memfd_create"):
        try:
            return os.memfd_create("tightmap")
        except OSError:  # forbidden here, or too many files
            pass
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Memory:
    """A shared file as a worker sees it: mapped once, and again only for a message that takes more than any before."""

    def __init__(self, file: int) -> None:
        self._file, self._view = file, memoryview(b"")

    def first(self, size: int) -> memoryview:
        """At least so many bytes from the beginning of the file on."""
        if len(self._view) < size:
            self._view = memoryview(mmap.mmap(self._file, size))
        return self._view


def pack(thing: Any) -> tuple[bytes, list[memoryview]]:
    """The pickle and the arrays that stayed out of it."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    return data, [buffer.raw() for buffer in buffers]


def send(stream: IO[bytes], packed: tuple[bytes, list[memoryview]], file: int | None) -> None:
    """Write a message; where there is a file, large arrays go there."""
    data, buffers = packed
    places: list[bytes] = []
    end = 0
    for buffer in buffers:
        if file is None or buffer.nbytes < LARGE:
            places.append(PLACE.pack(-1, buffer.nbytes))
            continue
        places.append(PLACE.pack(end, buffer.nbytes))
        _write_at(file, buffer, end)
        end += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
    stream.write(HEADER.pack(len(data), len(buffers)) + b"".join(places) + data)
    for place, buffer in zip(places, buffers, strict=True):
        if PLACE.unpack(place)[0] < 0:
            stream.write(buffer)
    stream.flush()


def receive(stream: IO[bytes], memory: Memory | None) -> tuple[bytes, list[Any]] | None:
    """The next message, still packed; None when whoever sends is gone."""
    header = _exactly(stream, HEADER.size)
    if header is None:
        return None
    size, count = HEADER.unpack(header)
    table = _exactly(stream, PLACE.size * count)
    data = _exactly(stream, size)
    if table is None or data is None:
        return None
    places = list(PLACE.iter_unpack(table))
    end = max((begin + length for begin, length in places if begin >= 0), default=0)
    shared = None
    if end:
        assert memory is not None
        shared = memory.first(end)
    buffers: list[Any] = []
    for begin, length in places:
        if begin < 0 or shared is None:
            buffer = _exactly(stream, length)
            if buffer is None:
                return None
            buffers.append(buffer)
        else:
            buffers.append(shared[begin : begin + length])
    return bytes(data), buffers


def unpack(packed: tuple[bytes, list[Any]]) -> Any:
    data, buffers = packed
    return pickle.loads(data, buffers=buffers)


def _write_at(file: int, buffer: memoryview, begin: int) -> None:
    done = 0
    while done < buffer.nbytes:
        done += os.pwrite(file, buffer[done : done + (1 << 30)], begin + done)


def _exactly(stream: IO[bytes], count: int) -> bytearray | None:
    """So many bytes, writable; None where the stream ends before."""
    out = bytearray(count)
    view, got = memoryview(out), 0
    while got < count:
        more = stream.readinto(view[got:])  # type: ignore[attr-defined]
        if not more:
            return None
        got += more
    return out
