"""What a method can do, in types: its check, its row in `tightmap methods` and the choice of tests come from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import Graph


@dataclass(frozen=True)
class Capabilities:
    """What a method takes and what it gives.

    largest_order  most variables in a factor, None for any number
    binary         variables have two labels
    small_tables   factors are expanded to tables, so these must not be large (the method's own check says how large)
    names_only     labels are only names: costs depend on which labels are equal, and on nothing else
    metric         any tables are taken, but only metrics (label differences with non-negative weights) at full strength
    hard_costs     +inf is treated as what it is; otherwise the search sees large finite costs instead
    bounds         certified lower bounds
    exact          given time, the method ends with a proof
    random         the result depends on the seed
    """

    largest_order: int | None = None
    binary: bool = False
    small_tables: bool = False
    names_only: bool = False
    metric: bool = False
    hard_costs: bool = True
    bounds: bool = False
    exact: bool = False
    random: bool = False

    def words(self) -> str:
        """What the method needs, for people."""
        parts = []
        if self.binary:
            parts.append("two labels a variable")
        if self.largest_order == 2:
            parts.append("pairwise")
        elif self.largest_order is not None:
            parts.append(f"factors of at most {self.largest_order} variables")
        if self.small_tables:
            parts.append("small tables")
        if self.names_only:
            parts.append("labels that are only names")
        if self.metric:
            parts.append("best with metrics")
        return ", ".join(parts) or "any model"

    def check(self, name: str, graph: Graph) -> None:
        """Raise a ModelError that names the first thing in the model that a method of this name does not take."""
        if self.binary and graph.max_labels > 2:
            g = graph.arrays
            i = int(np.argmax(g.cards > 2))
            first, last = g.adj_start[i : i + 2]
            where = (
                f" in the factor on variables {graph.original_scope(int(g.adj_factor[first]))}" if first < last else ""
            )
            raise ModelError(
                f"method {name!r} takes variables of two labels, but variable {int(graph.variables[i])}{where} has "
                f"{int(g.cards[i])}; try method 'auto'"
            )
        if self.largest_order is not None and graph.order > self.largest_order:
            sizes = np.diff(graph.arrays.scope_start)
            first = int(np.argmax(sizes > self.largest_order))
            raise ModelError(
                f"method {name!r} takes factors of at most {self.largest_order} variables, but the factor on "
                f"variables {graph.original_scope(first)} has {int(sizes[first])}; try method 'admm' or 'srmp'"
            )
