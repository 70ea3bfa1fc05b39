"""The process of a search by another program: ``python -m tightmap.solvers.engines.child MODULE``.

Problems come on standard input, each a pickled dict with its length before; ``search(problem, tell)`` of the module
solves one, and ``tell(key=value, ...)`` sends a line to whoever asked (worker.py).  The last line about a problem has
the key "end" or "error".  The process ends when its standard input does, and with the process that started it.

Nothing of the package but this is loaded here: what a search needs is in the problem.
"""

from __future__ import annotations

import json
import pickle
import sys
from importlib import import_module
from typing import Any

from tightmap.runtime.lifeline import die_with_parent


def tell(**message: Any) -> None:
    """Send a message: values are what JSON has."""
    sys.stdout.write("@" + json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    die_with_parent()
    stream = sys.stdin.buffer
    while len(size := stream.read(8)) == 8:
        data = stream.read(int.from_bytes(size, "little"))
        try:
            import_module(sys.argv[1]).search(pickle.loads(data), tell)
        except Exception as error:
            tell(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
