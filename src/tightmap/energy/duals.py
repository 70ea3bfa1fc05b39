"""What a dual method leaves behind for others: its messages, in the one form that the certificate reads.

Messages of any method are valid for any other (docs/maths.md), so a run of one can start where another ended.
Expanding them to one vector per factor and member costs memory, so it is done when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tightmap.energy.energies import message_offsets
from tightmap.graph.graph import FloatArray, Graph
from tightmap.runtime.lazy import lazy

if TYPE_CHECKING:
    from tightmap.solvers.base import Init


class Dual:
    """State of a finished run of a dual method.

    messages  flat vector in the layout of ``energies.message_offsets(graph)``, computed on first use
    native    the method's own state, for a later run of the same method on the same graph
    """

    def __init__(self, graph: Graph, expand: Callable[[], FloatArray], native: Any = None) -> None:
        self.graph = graph
        self.native = native
        self._expand: Callable[[], FloatArray] | None = expand

    def __getstate__(self) -> dict[str, Any]:
        """For pickling: the messages themselves; a method's own state belongs to the process that made it."""
        return {"graph": self.graph, "native": None, "_expand": None, "messages": self.messages}

    @lazy
    def messages(self) -> FloatArray:
        assert self._expand is not None
        return self._expand()


def given_messages(init: Init, graph: Graph) -> FloatArray | None:
    """Messages that an earlier run left, if they fit the graph."""
    if not isinstance(init.state, Dual):
        return None
    messages = init.state.messages
    return messages if len(messages) == int(message_offsets(graph)[-1]) else None
