"""A worker process: models come in through its standard input, results go out through its standard output.

It ends when whoever started it is gone, and it leaves Ctrl-C to that one.  What others print in here goes to standard
error; standard input of others is empty.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from queue import SimpleQueue
from typing import Any

from tightmap.many.messages import Memory, pack, receive, send, unpack
from tightmap.runtime import clock
from tightmap.runtime.lifeline import die_with_parent


def main(file: int | None) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clock.announce_never()
    inward, outward = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    inbox: SimpleQueue[tuple[bytes, list[Any]]] = SimpleQueue()
    threading.Thread(target=_read, args=(inward, file, inbox), daemon=True).start()
    with open(outward, "wb") as answers:
        while True:
            packed = inbox.get()
            answer = _answer(packed)
            del packed  # its arrays are overwritten by the next message
            send(answers, answer, None)
            del answer


def _read(inward: int, file: int | None, inbox: SimpleQueue[tuple[bytes, list[Any]]]) -> None:
    """In a thread of its own, which notices in the middle of a run that nobody waits for it any more."""
    memory = None if file is None else Memory(file)
    with open(inward, "rb", buffering=0) as stream:
        while True:
            packed = receive(stream, memory)
            if packed is None:
                os._exit(0)
            inbox.put(packed)


def _answer(packed: tuple[bytes, list[Any]]) -> tuple[bytes, list[memoryview]]:
    from tightmap.many.tasks import perform

    try:
        return pack(perform(unpack(packed)))
    except Exception as error:
        return pack_error(error)


def pack_error(error: Exception) -> tuple[bytes, list[memoryview]]:
    """An error with the lines that led to it, as something that survives the way to another process."""
    from tightmap.errors import ModelError, OptionError

    if type(error) not in (ModelError, OptionError):  # these say everything in one sentence
        error.add_note("in a worker:\n" + "".join(traceback.format_exception(error)))
    try:
        packed = pack(error)
        unpack(packed)  # some are pickled but cannot be made again
        return packed
    except Exception:
        plain = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", []):
            plain.add_note(note)
        return pack(plain)
