"""One number for many entries: an array without strides, which is kept, copied and pickled as that number.

The label counts of a grid and a weight that is the same for all factors are such arrays (read-only).  NumPy would
pickle them entry by entry, and whoever unpickles them would have lists to look through where there was one number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Repeated(NamedTuple):
    """What such an array is in a pickle."""

    number: npt.NDArray[Any]
    times: int


def repeated(number: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """One number for so many entries, kept once; read-only, as np.broadcast_to, which takes as long as all checks."""
    view: npt.NDArray[Any] = np.ndarray(count, number.dtype, number.copy(), strides=(0,))
    view.flags.writeable = False
    return view


def folded(state: dict[str, Any]) -> dict[str, Any]:
    """The state of an object, its repeated arrays in a form that stays small in a pickle."""
    return {name: _fold(value) for name, value in state.items()}


def unfolded(state: dict[str, Any]) -> dict[str, Any]:
    return {name: repeated(*value) if type(value) is Repeated else value for name, value in state.items()}


def _fold(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.strides == (0,) and len(value) and not value.flags.writeable:
        return Repeated(value[:1].reshape(()).copy(), len(value))
    return value
