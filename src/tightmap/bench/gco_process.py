"""GCO on arrays from a file, in a process that loads nothing else.

    python -m tightmap.bench.gco_process FILE expansion|swap 1|0      1: costs are whole numbers

The file has edges (m, 2), weights (m,), unary (n, S) and the table (S, S) that all edges share up to their weight; it
is replaced by one that has the labels, the seconds of the cut and the peak memory of the process in MiB.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt


def cut(arrays: dict[str, Any], algorithm: str, whole: bool) -> npt.NDArray[np.int64]:
    """Labels by GCO; costs that are whole numbers are taken as they are."""
    import gco

    options = {"down_weight_factor": 1} if whole else {}
    given = (arrays[key].copy() for key in ("edges", "weights", "unary", "base"))
    return np.asarray(gco.cut_general_graph(*given, algorithm=algorithm, **options), dtype=np.int64)


def peak() -> float:
    """Peak resident memory in MiB; not that of the process that started this one, which a child inherits elsewhere."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    place, algorithm, whole = sys.argv[1:4]
    with np.load(place) as file:
        arrays = {key: file[key] for key in file.files}
    begin = time.perf_counter()
    labels = cut(arrays, algorithm, whole == "1")
    elapsed = time.perf_counter() - begin
    np.savez(place, labels=labels, elapsed=elapsed, peak=peak())


if __name__ == "__main__":
    main()
