"""Recipe: a model as the calls that build it, in plain numbers, lists and dicts.

What is plain can be sent to another process, changed in place of the model, and printed as a script.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import tightmap as tm
from tightmap.factors.block import Block
from tightmap.factors.dense import DenseBlock
from tightmap.factors.difference import DifferenceBlock, LinearBlock
from tightmap.factors.pattern import PatternBlock
from tightmap.factors.pn_potts import PnPottsBlock
from tightmap.factors.potts import PottsBlock
from tightmap.factors.second_difference import SecondDifferenceBlock
from tightmap.factors.sparse import SparseBlock

from .sizes import lines as lines_of_sizes
from .sizes import treat_as

Call = tuple[str, dict[str, Any]]  # a method of Model, and its arguments by name

# the argument that lists the scopes, one row a factor
ROWS = {
    "add_factors": "scopes",
    "add_indexed_factors": "scopes",
    "add_potts": "edges",
    "add_truncated_linear": "edges",
    "add_truncated_quadratic": "edges",
    "add_pn_potts": "scopes",
    "add_label_patterns": "scopes",
    "add_sparse": "scopes",
    "add_second_difference": "triples",
}


@dataclass(frozen=True)
class Recipe:
    """Label counts and calls; ``grid`` is (height, width) where the model is made by Model.grid.

    ``sizes`` : in which ways it is treated as a large model (sizes.py), from its building to that of the next one
    """

    cards: list[int]
    calls: list[Call] = field(default_factory=list)
    grid: tuple[int, int] | None = None
    sizes: tuple[str, ...] = ()

    @property
    def states(self) -> int:
        """Number of labellings."""
        return math.prod(self.cards)

    def build(self) -> tm.Model:
        treat_as(self.sizes)
        model = tm.Model(self.cards) if self.grid is None else tm.Model.grid(*self.grid, self.cards[0])
        self.add_to(model)
        return model

    def add_to(self, model: tm.Model) -> None:
        """Make the calls on a model that is there already."""
        for name, arguments in self.calls:
            if self._as_array(name, arguments):
                arguments = arguments | {"costs": np.array(arguments["costs"])}
            getattr(model, name)(**arguments)

    def _as_array(self, name: str, arguments: dict[str, Any]) -> bool:
        """Whether these are the costs of an image, which come as an array."""
        return name == "add_unaries" and "nodes" not in arguments and self.grid is not None

    def source(self, variable: str = "model") -> str:
        """The lines of Python that build it."""
        if self.grid is None:
            first = f"{variable} = tm.Model({self.cards})"
        else:
            first = f"{variable} = tm.Model.grid({self.grid[0]}, {self.grid[1]}, {self.cards[0]})"
        return "\n".join([*lines_of_sizes(self.sizes), first, *self.lines(variable)])

    def lines(self, variable: str = "model") -> list[str]:
        """The calls alone."""
        out = []
        for name, arguments in self.calls:
            shown = {key: repr(value) for key, value in arguments.items()}
            if self._as_array(name, arguments):
                shown["costs"] = f"np.array({shown['costs']})"
            given = ", ".join(f"{key}={value}" for key, value in shown.items())
            out.append(f"{variable}.{name}({given})")
        return out

    def with_calls(self, calls: list[Call]) -> Recipe:
        return replace(self, calls=calls)


def recipe_of(model: tm.Model) -> Recipe:
    """The recipe of a model that was built by other means."""
    cards = model.cardinalities.tolist()
    calls: list[Call] = []
    if model.constant:
        calls.append(("add_constant", {"cost": float(model.constant)}))
    if len(cards):
        calls.append(("add_unaries", {"costs": _by_variable(model, model.unaries)}))
    calls += [_call_of(model, block) for block in model.blocks]
    held = np.flatnonzero(model.clamped >= 0)
    if len(held):
        calls.append(("clamp", {"evidence": {int(i): int(model.clamped[i]) for i in held}}))
    return Recipe(cards, calls, model.grid_shape)


def _by_variable(model: tm.Model, flat: np.ndarray) -> list[list[float]]:
    return [flat[a:b].tolist() for a, b in zip(model.offset[:-1], model.offset[1:], strict=True)]


def _call_of(model: tm.Model, block: Block) -> Call:
    scopes, weights = block.scopes.tolist(), block.weights.tolist()
    match block:
        case DenseBlock():
            pool = {"tables": block.tables.tolist(), "index": block.index.tolist()}
            return "add_indexed_factors", {"scopes": scopes, **pool, "weights": weights}
        case PottsBlock():
            return "add_potts", {"edges": scopes, "weights": weights}
        case DifferenceBlock():
            name = "add_truncated_linear" if isinstance(block, LinearBlock) else "add_truncated_quadratic"
            return name, {"edges": scopes, "weights": weights, "limit": block.limits.tolist()}
        case PnPottsBlock():
            disagreement, *own = block.costs.tolist()
            costs = {"label_costs": own, "disagreement": disagreement}
            return "add_pn_potts", {"scopes": scopes, "weights": weights, **costs}
        case PatternBlock():
            return "add_label_patterns", {"scopes": scopes, "values": block.values.tolist(), "weights": weights}
        case SparseBlock():
            costs = {"entries": block.entries.tolist(), "values": block.values.tolist()}
            return "add_sparse", {"scopes": scopes, **costs, "default": float(block.default), "weights": weights}
        case SecondDifferenceBlock():
            values = _by_variable(model, block.values)
            limit = float(block.limit)
            return "add_second_difference", {"triples": scopes, "weights": weights, "values": values, "limit": limit}
    raise TypeError(f"no call is known for {type(block).__name__}")
