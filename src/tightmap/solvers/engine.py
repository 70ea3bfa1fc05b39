"""What the engines of TRW-S and of ADMM have in common.

A method that has quick kernels for regular grids and others for everything else keeps its iterates in an engine, one
class for each of the two.  The solver decides what to do next and how long; the engine knows how the iterates lie in
memory and how to advance them.  Between engines iterates travel in the layout of the Graph:

                      content                                    how an iteration is made
    trws  messages    of both ends of every edge (flat)          Passes: rounding, certificate
    admm  splitting   copies and multipliers, (D, N) each        Step: penalty, over-relaxation
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tightmap.runtime.pace import EVER

How = TypeVar("How", contravariant=True)
Content = TypeVar("Content")


class Engine(Protocol[How, Content]):
    """Iterates of one run, and the kernels that advance them."""

    def iterate(self, count: int, how: How, left: float = EVER) -> tuple[float, float]:
        """Make some iterations, in about ``left`` seconds at most; two numbers that say how far the method is."""
        ...

    def load(self, content: Content) -> None:
        """Go on from there."""
        ...

    def export(self) -> Content:
        """A copy of the iterates, which fits any engine of the method for the same graph."""
        ...

    def close(self) -> None:
        """Give the memory back; the engine is of no use afterwards."""
        ...
