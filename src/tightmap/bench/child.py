"""The process of one run: ``python -m tightmap.bench.child``.

The run is a line of JSON on standard input, which stays open as long as whoever started the run lives; this process
ends with it, and sees to that before it loads anything.  An empty line on standard output marks the moment when the
measured part begins, for whoever watches the clock.  The last line on standard output is the row; whatever else
anything in this process prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import threading

from tightmap.bench.records import Row, Run, clean
from tightmap.runtime.lifeline import die_with_parent


def _leave_with_parent() -> None:
    """End this process when the pipe from its parent breaks: a killed benchmark leaves no run behind."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    die_with_parent()
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return  # whoever wanted the run is gone
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    channel = os.dup(1)
    os.dup2(2, 1)  # other programs like to print
    row = _row(Run(**json.loads(line)), channel)
    with open(channel, "wb") as stream:
        stream.write(json.dumps(clean(row), allow_nan=False).encode() + b"\n")


def _row(run: Run, channel: int) -> Row:
    from tightmap.bench.worker import perform
    from tightmap.errors import ModelError, OptionError

    try:
        return perform(run, started=lambda: os.write(channel, b"\n"))
    except (ModelError, OptionError, ImportError) as error:
        return {"status": "REFUSED", "reason": str(error)}
    except MemoryError:
        return {"status": "FAILED", "reason": "out of memory"}


if __name__ == "__main__":
    main()
