"""What the two engines of ADMM share: grids with a common table (grid.py) and everything else (general.py).

An engine holds copies and multipliers and knows the natural penalty of its model, kappa: the mean over variables of the
ranges of the factors around a variable, divided by the number of copies; the gradient of a copy moves within that.
ADMM is invariant under (E, rho, y) -> (a E, a rho, a y), so penalties are counted in kappa and tables are never
rescaled.

Unaries are capped at their minimum plus the ranges of the factors around (ranges.py): that changes no minimiser and
keeps huge costs from deciding the steps.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tightmap.graph.graph import Arrays
from tightmap.moves.context import Labels, Vector
from tightmap.runtime.pace import EVER
from tightmap.solvers.engine import Engine

SERIAL = 300_000  # models with fewer labels in all run on one thread, which is then faster than two


def worthwhile_threads(size: float, threads: int) -> int:
    return threads if size > SERIAL else 1


class Step(NamedTuple):
    """How an iteration is made."""

    rho: float
    relax: float = 1.0  # over-relaxation, 1 for none
    fresh: bool = True  # rho or relax is another one than before: nothing that is cached holds any more


class Iterates(NamedTuple):
    """Copies and multipliers, (D, N) each, N the total number of labels, in the layout of graph.arrays.unary."""

    copies: Vector
    multipliers: Vector


class Heated(NamedTuple):
    """A starting point between a labelling and the uniform point (heat 1)."""

    labels: Labels
    heat: float

    def vectors(self, part: slice, cards: npt.NDArray[np.integer]) -> npt.NDArray[np.float32]:
        """Of some variables, flat."""
        x = np.repeat((self.heat / cards).astype(np.float32), cards)
        x[np.cumsum(cards) - cards + self.labels[part]] += np.float32(1.0 - self.heat)
        return x


Start = npt.NDArray[np.floating] | Heated | None  # vectors (flat), a heated labelling, or the uniform point


class Noise:
    """Normal noise for the unaries, drawn piece by piece."""

    def __init__(self, scale: float, seed: list[int]) -> None:
        largest = float(np.finfo(np.float32).max) / 64.0  # no draw is beyond single precision
        self.scale, self._generator = np.float32(min(scale, largest)), np.random.default_rng(seed)

    def draw(self, size: int) -> npt.NDArray[np.float32]:
        return self.scale * self._generator.standard_normal(size, dtype=np.float32)


class Splitting(Engine[Step, Iterates]):
    """Copies and multipliers of one run."""

    kappa: float
    variables: int
    effort: float  # of an iteration on one thread, in nanoseconds, very roughly

    @abstractmethod
    def reset(self, start: Start, noise: Noise | None = None) -> None:
        """Start there in every copy, multipliers zero, noise added to the unaries."""

    @abstractmethod
    def iterate(self, count: int, how: Step, left: float = EVER) -> tuple[float, float]:
        """Iterations at one rho; returns (squared residual per variable, part of the vectors that was computed).

        After ``left`` seconds the last iteration may stay unfinished.
        """

    @abstractmethod
    def load(self, content: Iterates) -> None: ...

    @abstractmethod
    def export(self) -> Iterates: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def relaxed(self) -> Vector:
        """The first copy, flat."""

    @abstractmethod
    def labels(self) -> Labels:
        """Largest entry of every vector of the first copy."""

    @abstractmethod
    def searched(self, g: Arrays) -> Arrays:
        """The model whose energy the iterates descend: the given one with capped and perturbed unaries."""
