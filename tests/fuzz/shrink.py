"""Make a failing model small: leave things out, one at a time, as long as it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .recipe import ROWS, Call, Recipe
from .trials import Trial, without_option

PER_ROW = ("weights", "index", "limit", "tables")  # arguments that may have one entry a factor

Failing = Callable[[Trial, Recipe], bool]


def shrink(trial: Trial, recipe: Recipe, failing: Failing, seconds: float = 20.0) -> tuple[Trial, Recipe]:
    """The smallest trial and model found in this time that still fail."""
    until = time.monotonic() + seconds
    shrunk = True
    while shrunk and time.monotonic() < until:
        shrunk = False
        for smaller in _smaller(trial, recipe):
            if time.monotonic() >= until:
                break
            if failing(*smaller):
                trial, recipe = smaller
                shrunk = True
                break
    return trial, recipe


def _smaller(trial: Trial, recipe: Recipe) -> Iterator[tuple[Trial, Recipe]]:
    """Everything that is a little less, the largest steps first."""
    for smaller in smaller_recipes(recipe):
        yield trial, smaller
    for name in (*trial.options, *trial.arguments):
        if name != "threads" or trial.arguments[name] != 1:
            yield without_option(trial, name), recipe
    if trial.watched:
        yield replace(trial, watched=False), recipe
    for simpler in simpler_numbers(recipe):
        yield trial, simpler


def smaller_recipes(recipe: Recipe) -> Iterator[Recipe]:
    calls = recipe.calls
    for c in range(len(calls)):
        yield recipe.with_calls(calls[:c] + calls[c + 1 :])
    for size in recipe.sizes:
        yield replace(recipe, sizes=tuple(other for other in recipe.sizes if other != size))
    if recipe.grid is not None:
        yield replace(recipe, grid=None)
    else:
        for i in range(len(recipe.cards)):
            yield without_variable(recipe, i)
        for i, count in enumerate(recipe.cards):
            if count > 8:  # many at once where there are many
                half = recipe
                for _ in range(count // 2):
                    half = without_label(half, i, half.cards[i] - 1)
                yield half
            for s in range(min(count, 8) if count > 1 else 0):
                yield without_label(recipe, i, s)
    for c, call in enumerate(calls):
        for shorter in _shorter(call):
            yield recipe.with_calls([*calls[:c], shorter, *calls[c + 1 :]])


def _shorter(call: Call) -> Iterator[Call]:
    """The call with one row less."""
    name, given = call
    if name in ROWS and len(given[ROWS[name]]) > 1:
        for row in range(len(given[ROWS[name]])):
            yield _without_row(call, row)
    elif name == "add_unaries" and "nodes" in given and len(given["nodes"]) > 1:
        for row in range(len(given["nodes"])):
            kept = [r for r in range(len(given["nodes"])) if r != row]
            yield name, {"costs": [given["costs"][r] for r in kept], "nodes": [given["nodes"][r] for r in kept]}
    elif name == "add_sparse":
        for e in range(len(given["entries"])):
            shorter = {key: given[key][:e] + given[key][e + 1 :] for key in ("entries", "values")}
            yield name, given | shorter


def _without_row(call: Call, row: int) -> Call:
    name, given = call
    rows = given[ROWS[name]]
    shorter = dict(given)
    shorter[ROWS[name]] = rows[:row] + rows[row + 1 :]
    for key in PER_ROW:
        values = given.get(key)
        if not isinstance(values, list) or (key == "tables" and not _own_tables(call)):
            continue
        shorter[key] = values[:row] + values[row + 1 :]
    return name, shorter


def _own_tables(call: Call) -> bool:
    """Does every factor of this call have a table of its own?"""
    name, given = call
    return name == "add_factors" and np.ndim(given["tables"]) > len(given["scopes"][0])


# ------------------------------------------------------------------------------------------------- variables and labels


def without_variable(recipe: Recipe, i: int) -> Recipe:
    """A variable less, and with it every factor that it is in."""
    calls: list[Call] = []
    for call in recipe.calls:
        name, given = call
        if name in ROWS:
            for row in reversed(range(len(given[ROWS[name]]))):
                if i in call[1][ROWS[name]][row]:
                    call = _without_row(call, row)
            if call[1][ROWS[name]]:
                given = dict(call[1])
                given[ROWS[name]] = [[j - (j > i) for j in scope] for scope in given[ROWS[name]]]
                if name == "add_second_difference":
                    given["values"] = given["values"][:i] + given["values"][i + 1 :]
                calls.append((name, given))
        elif name == "add_unaries" and "nodes" in given:
            kept = [r for r, j in enumerate(given["nodes"]) if j != i]
            costs, nodes = [given["costs"][r] for r in kept], [given["nodes"][r] for r in kept]
            if nodes:
                calls.append((name, {"costs": costs, "nodes": [j - (j > i) for j in nodes]}))
        elif name == "add_unaries":
            calls.append((name, {"costs": given["costs"][:i] + given["costs"][i + 1 :]}))
        elif name == "clamp":
            evidence = {j - (j > i): s for j, s in given["evidence"].items() if j != i}
            calls.append((name, {"evidence": evidence}))
        else:
            calls.append(call)
    return replace(recipe, cards=recipe.cards[:i] + recipe.cards[i + 1 :], calls=calls)


def without_label(recipe: Recipe, i: int, s: int) -> Recipe:
    """A label less; what structured factors say of the others changes, what tables say of them does not."""
    cards = [c - (j == i) for j, c in enumerate(recipe.cards)]
    calls: list[Call] = []
    for name, given in recipe.calls:
        given = dict(given)
        if name == "add_unaries":
            nodes = given.get("nodes", range(len(recipe.cards)))
            given["costs"] = [
                row[:s] + row[s + 1 :] if j == i else row for j, row in zip(nodes, given["costs"], strict=True)
            ]
        elif name == "clamp":
            given["evidence"] = {
                j: label - (label > s) if j == i else label
                for j, label in given["evidence"].items()
                if (j, label) != (i, s)
            }
        elif name in ("add_factors", "add_indexed_factors"):
            calls += _cut_tables(name, given, i, s)
            continue
        elif name == "add_sparse":
            calls += _cut_entries(given, i, s)
            continue
        elif name == "add_second_difference":
            given["values"] = [v[:s] + v[s + 1 :] if j == i else v for j, v in enumerate(given["values"])]
        calls.append((name, given))
    return replace(recipe, cards=cards, calls=calls)


def _cut_tables(name: str, given: dict[str, Any], i: int, s: int) -> Iterator[Call]:
    """Tables without a label; factors that share one and are cut differently no longer do."""
    scopes = given["scopes"]
    if not any(i in scope for scope in scopes):
        yield name, given
        return
    tables = np.asarray(given["tables"], dtype=np.float64)
    for c, scope in enumerate(scopes):
        table = tables
        if name == "add_indexed_factors":
            table = tables[given["index"][c]]
        elif tables.ndim > len(scope):
            table = tables[c]
        for p, j in enumerate(scope):
            if j == i:
                table = np.delete(table, s, axis=p)
        own: dict[str, Any] = {"scopes": [scope], "tables": table.tolist()}
        if given.get("weights") is not None:
            own["weights"] = [np.broadcast_to(given["weights"], (len(scopes),))[c].item()]
        yield "add_factors", own


def _cut_entries(given: dict[str, Any], i: int, s: int) -> Iterator[Call]:
    for c, scope in enumerate(given["scopes"]):
        mine = [p for p, j in enumerate(scope) if j == i]
        kept = [e for e, entry in enumerate(given["entries"]) if all(entry[p] != s for p in mine)]
        entries = [[x - (p in mine and x > s) for p, x in enumerate(given["entries"][e])] for e in kept]
        own = {"scopes": [scope], "entries": entries, "values": [given["values"][e] for e in kept]}
        yield "add_sparse", {**given, **own, "weights": [given["weights"][c]]}


# ------------------------------------------------------------------------------------------------- numbers


def simpler_numbers(recipe: Recipe) -> Iterator[Recipe]:
    """One number zero, or all numbers of a call with fewer digits."""
    for c, (name, given) in enumerate(recipe.calls):
        for key in ("cost", "costs", "tables", "values", "weights", "label_costs", "default", "disagreement"):
            if key not in given:
                continue
            for value in _simpler(given[key]):
                yield recipe.with_calls([*recipe.calls[:c], (name, given | {key: value}), *recipe.calls[c + 1 :]])


def _simpler(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for v, part in enumerate(value):
            for simpler in _simpler(part):
                yield [*value[:v], simpler, *value[v + 1 :]]
    elif value != 0.0:
        yield 0.0
        short = float(f"{value:.1g}")
        if short != value and np.isfinite(value):
            yield short
