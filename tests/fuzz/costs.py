"""The numbers of random models: ordinary ones, and all kinds that tempt a program to say something wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .recipe import Call, Recipe

Numbers = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _spread(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.choice([-1.0, 1.0], size=shape) * 10.0 ** rng.uniform(-12, 12, size=shape)


STYLES: dict[str, Numbers] = {
    "normal": lambda rng, shape: rng.normal(size=shape) * 3,
    "positive": lambda rng, shape: rng.random(size=shape) * 10,
    "ties": lambda rng, shape: rng.integers(-2, 3, size=shape).astype(float),
    "counts": lambda rng, shape: rng.integers(0, 4, size=shape).astype(float),
    "integers": lambda rng, shape: rng.integers(-1000, 1000, size=shape).astype(float),
    "quarters": lambda rng, shape: rng.integers(-12, 13, size=shape) / 4.0,
    "decimals": lambda rng, shape: rng.integers(-30, 31, size=shape) / 10.0,
    "zeros": lambda rng, shape: np.zeros(shape),
    "equal": lambda rng, shape: np.full(shape, 0.7),
    "mostly zero": lambda rng, shape: np.where(rng.random(size=shape) < 0.7, 0.0, rng.normal(size=shape)),
    "nearly integers": lambda rng, shape: rng.integers(-2, 3, size=shape) + 1e-10 * rng.normal(size=shape),
    "nearly equal": lambda rng, shape: 1.0 + 1e-7 * rng.normal(size=shape),
    "spread": _spread,
    "large integers": lambda rng, shape: 2.0**40 + rng.integers(-3, 4, size=shape),
    "tiny": lambda rng, shape: 1e-9 * rng.normal(size=shape),
    "huge": lambda rng, shape: 1e285 * rng.normal(size=shape),
    "far apart": lambda rng, shape: rng.choice([-1.0, 1.0], size=shape) * 10.0 ** rng.uniform(-290, 285, size=shape),
    "subnormal": lambda rng, shape: rng.integers(-50, 51, size=shape) * 5e-324,
}
USUAL = ("normal", "positive", "ties", "counts", "integers", "quarters")

COSTS = ("cost", "costs", "tables", "label_costs", "disagreement", "values", "default", "weights")


def restyled(recipe: Recipe, rng: np.random.Generator) -> Recipe:
    """The same calls with other numbers, of one style or, sometimes, of another style in every call."""
    mixed = rng.random() < 0.15
    style = _style(rng)
    # moves and cuts are for weights that punish differences: half of the models have only such
    attractive = rng.random() < 0.5
    full = recipe.grid is not None and rng.random() < 0.8  # an edge of weight zero is none, and then it is no image
    calls: list[Call] = []
    for name, given in recipe.calls:
        numbers = STYLES[_style(rng) if mixed else style]
        changed = dict(given)
        for key in COSTS:
            if key in given:
                changed[key] = _again(given[key], rng, _weights(attractive) if key == "weights" else numbers)
        if name == "add_second_difference":  # its values are where labels stand, its cost is in the weights
            changed["values"] = _again(given["values"], rng, STYLES["quarters"])
        if name in ("add_potts", "add_truncated_linear", "add_truncated_quadratic", "add_second_difference"):
            changed["weights"] = _again(given["weights"], rng, numbers)
            if attractive:
                changed["weights"] = np.abs(changed["weights"]).tolist()
            if full:
                changed["weights"] = np.where(np.equal(changed["weights"], 0.0), 1.0, changed["weights"]).tolist()
        calls.append((name, changed))
    return recipe.with_calls(calls)


def _style(rng: np.random.Generator) -> str:
    return str(rng.choice(USUAL if rng.random() < 0.5 else list(STYLES)))


def _weights(attractive: bool) -> Numbers:
    return lambda rng, shape: rng.choice([1.0, 1.0, 0.5, 3.0, 0.1, 0.0] + ([] if attractive else [-1.0]), size=shape)


def _again(old: Any, rng: np.random.Generator, numbers: Numbers) -> Any:
    """New numbers in the place of old ones; forbidden entries stay forbidden."""
    if isinstance(old, list) and old and isinstance(old[0], list) and len({len(row) for row in old}) > 1:
        return [_again(row, rng, numbers) for row in old]
    array = np.asarray(old, dtype=np.float64)
    return np.where(np.isinf(array), np.inf, numbers(rng, array.shape)).tolist()


def hardened(recipe: Recipe, rng: np.random.Generator, share: float) -> Recipe:
    """A share of the costs in tables and unaries becomes +inf; weights of such calls are made non-negative."""
    calls: list[Call] = []
    for name, given in recipe.calls:
        changed = dict(given)
        if name == "add_unaries":
            changed["costs"] = [_forbid(row, rng, share / 3) for row in given["costs"]]
        elif name in ("add_factors", "add_indexed_factors", "add_sparse"):
            key = "values" if name == "add_sparse" else "tables"
            changed[key] = _forbid(given[key], rng, share)
            if key == "tables" and rng.random() < 0.15:
                changed[key] = _barred(changed[key], rng)
            if name == "add_sparse" and rng.random() < 0.1:
                changed["default"] = np.inf
            if given.get("weights") is not None:
                changed["weights"] = np.abs(given["weights"]).tolist()
        calls.append((name, changed))
    return recipe.with_calls(calls)


def _forbid(values: Any, rng: np.random.Generator, share: float) -> Any:
    array = np.asarray(values, dtype=np.float64)
    return np.where(rng.random(array.shape) < share, np.inf, array).tolist()


def _barred(tables: Any, rng: np.random.Generator) -> Any:
    """A whole row of every table is forbidden: one label of one of its variables."""
    array = np.asarray(tables, dtype=np.float64)
    if not array.size:
        return tables
    axis = int(rng.integers(array.ndim))
    row = [slice(None)] * array.ndim
    row[axis] = int(rng.integers(array.shape[axis]))
    array[tuple(row)] = np.inf
    return array.tolist()


def map_costs(call: Call, change: Callable[[np.ndarray], np.ndarray]) -> Call:
    """The call with its energy multiplied: ``change`` multiplies arrays, once in every term."""
    name, given = call
    if name == "clamp":
        return call
    if given.get("weights") is not None:
        key = "weights"
    elif name == "add_constant":
        key = "cost"
    elif name == "add_unaries":
        return name, given | {"costs": [change(np.asarray(row, dtype=np.float64)).tolist() for row in given["costs"]]}
    elif name in ("add_factors", "add_indexed_factors"):
        key = "tables"
    else:
        raise ValueError(f"{name}: no weights to change")
    return name, given | {key: change(np.asarray(given[key], dtype=np.float64)).tolist()}
