"""The course of a run on a model so large that methods run one after the other: what fits, and who may go on.

    a method is started    while  pace * STARTS[method] * labels  <=  FITS * (time that is left),   ALONE for the first
    it keeps its turn      while  gap(now) <= (1 - CLOSING) gap(a SPAN of the limit ago),  or no other one can start
    it ends before the limit when what is left is less than END of its last step

``pace`` is how much slower than the table STARTS this machine has been with the starts of this run.
"""

from __future__ import annotations

import math

from tightmap.solvers.auto.plan import STARTS

FITS = 0.5  # part of the time left that a start may take
ALONE = 0.8  # the same of the first method: without it there is nothing
SPAN = 0.1  # part of the time limit over which the gap is watched
CLOSING = 0.1  # part of the gap that has to vanish meanwhile
END = 0.5  # of a step: what cannot be cut short in it, and the end of a method; descents look at the clock
USUAL = 0.5  # seconds per million labels of a method that the table does not know


class Course:
    """Of one run."""

    def __init__(self, labels: int, limit: float) -> None:
        self.labels, self.limit = labels, limit
        self.pace = 1.0
        self._gap = math.inf
        self._since = -math.inf
        self._falls = False
        self._begun = False

    def start(self, method: str) -> float:
        """Seconds that the start of a method will take, about."""
        return self.pace * STARTS.get(method, USUAL) * self.labels / 1e6

    def fits(self, method: str, left: float) -> bool:
        return self.start(method) <= (FITS if self._begun else ALONE) * left

    def started(self, method: str, seconds: float) -> None:
        """A start took so long."""
        self.pace = max(1.0, self.pace, seconds / (STARTS.get(method, USUAL) * self.labels / 1e6))
        self._gap, self._since = math.inf, -math.inf
        self._begun = True

    def closing(self, gap: float, now: float) -> bool:
        """Whether the gap is still falling; asked after every step of the method whose turn it is."""
        if now - self._since >= SPAN * self.limit:
            self._falls = gap < math.inf and gap <= (1.0 - CLOSING) * self._gap
            self._gap, self._since = gap, now
        return self._falls

    def last(self, step: float, left: float) -> bool:
        """A step took so long: whether there is no time for another one and the end of the method."""
        return left < END * step
