"""Compiled functions without reference counts, for kernels that hand tuples of arrays to each other.

Numba counts references: every call that passes a tuple of arrays increments and decrements a counter for each of them,
through a function pointer and atomically.  With the some thirty arrays of a model and its region graph that is 0.3
microseconds per call, more than the work on a small table (measured: the message of a 4 x 4 pair takes 0.17 instead of
1.7 microseconds).  A lean function does no such bookkeeping; in return neither it nor anything it calls may allocate.
"""

from __future__ import annotations

from typing import Any

from numba import njit

lean: Any = njit(cache=True, nogil=True, _nrt=False, error_model="numpy", no_cfunc_wrapper=True)  # type: ignore[call-overload]
