"""The labels that are left of a graph, renumbered: what propagation of the hard constraints removed stays outside."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tightmap.runtime.lazy import lazy

Labels = npt.NDArray[np.int64]


class KeptLabels:
    """``alive`` says of every label, numbered through, whether it stays; every variable keeps one at least."""

    def __init__(self, offset: npt.NDArray[np.int64], alive: npt.NDArray[np.bool_]) -> None:
        self.offset, self.alive = offset, alive
        self.first = np.concatenate(([0], np.cumsum(alive)))[offset]  # number of the first kept label of a variable

    @lazy
    def everything(self) -> bool:
        return bool(self.alive.all())

    @lazy
    def cards(self) -> list[int]:
        """How many labels every variable keeps."""
        return [int(c) for c in np.diff(self.first)]

    @lazy
    def labels(self) -> list[Labels]:
        """The labels of the graph that every variable keeps."""
        return [np.flatnonzero(mine) for mine in np.split(self.alive, self.offset[1:-1])]

    @lazy
    def _place(self) -> Labels:
        return np.cumsum(self.alive) - 1

    def inward(self, labels: Labels) -> Labels | None:
        """Labels of the graph in the new numbers; None where one of them has gone."""
        at = self.offset[:-1] + labels
        return self._place[at] - self.first[:-1] if self.alive[at].all() else None

    def outward(self, labels: Labels) -> Labels:
        """Labels of the graph from new numbers."""
        return np.flatnonzero(self.alive)[self.first[:-1] + labels] - self.offset[:-1]
