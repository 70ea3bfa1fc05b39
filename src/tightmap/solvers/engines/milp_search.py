"""What the process of method "milp" does: tables to a programme, HiGHS, its answers back (milp.py)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

FORBIDDEN = -1

Ints = npt.NDArray[np.int64]


def columns(problem: dict[str, Any]) -> tuple[Ints, Ints, npt.NDArray[np.float64], int]:
    """Starts, rows and values of the columns: labels, then tuples.  Row i says that variable i has one label; the rows
    after these are those of every factor, position and label."""
    cards, offset, scope = problem["cards"], problem["offset"], problem["scope"]
    first, begin = problem["scope_start"], problem["begin"]
    n, labels = len(cards), int(offset[-1])
    at = n + np.concatenate(([0], np.cumsum(cards[scope])))
    order = np.repeat(np.diff(first), np.diff(begin))
    label_column = [np.arange(labels)]
    label_row = [np.repeat(np.arange(n), cards)]
    value = [np.ones(labels)]
    which = np.arange(int(at[-1]) - n) - np.repeat(at[:-1] - n, cards[scope])
    label_column.append(np.repeat(offset[scope], cards[scope]) + which)
    label_row.append(np.arange(n, int(at[-1])))
    value.append(-np.ones(int(at[-1]) - n))
    tuple_column = np.repeat(np.arange(int(begin[-1])), order)
    tuple_row = np.empty(len(tuple_column), np.int64)
    done = 0
    for f in range(len(begin) - 1):
        low, high = int(first[f]), int(first[f + 1])
        shape = tuple(cards[scope[low:high]].tolist())
        here = np.indices(shape).reshape(high - low, -1) + at[low:high, None]
        tuple_row[done : done + here.size] = here.T.reshape(-1)
        done += here.size
    column = np.concatenate([*label_column, labels + tuple_column])
    row = np.concatenate([*label_row, tuple_row])
    values = np.concatenate([*value, np.ones(len(tuple_row))])
    inside = np.argsort(column, kind="stable")
    start = np.concatenate(([0], np.cumsum(np.bincount(column, minlength=labels + int(begin[-1])))))
    return start, row[inside], values[inside], int(at[-1])


def programme(problem: dict[str, Any], highspy: Any) -> Any:
    """The linear relaxation."""
    start, index, value, rows = columns(problem)
    units = np.concatenate([problem["unary"], problem["tables"]])
    right = np.zeros(rows)
    right[: len(problem["cards"])] = 1.0
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(units), rows
    lp.col_cost_ = np.where(units == FORBIDDEN, 0.0, units * problem["unit"])
    lp.col_lower_ = np.zeros(len(units))
    lp.col_upper_ = np.where(units == FORBIDDEN, 0.0, 1.0)
    lp.row_lower_ = lp.row_upper_ = right
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start, index, value
    return lp


def search(problem: dict[str, Any], tell: Callable[..., None]) -> None:
    highspy: Any = import_module("highspy")
    solver = highspy.Highs()
    for option, setting in (
        ("output_flag", False),
        ("threads", 1),
        ("parallel", "off"),
        ("random_seed", problem["seed"] % 2**31),
        ("mip_rel_gap", 0.0),
        ("mip_abs_gap", 0.0),
    ):
        solver.setOptionValue(option, setting)
    lp = programme(problem, highspy)
    offset = problem["offset"]
    n, labels = len(problem["cards"]), int(offset[-1])

    def rounded(x: Any) -> list[int]:
        shares = np.asarray(x)[:labels]
        return [int(np.argmax(shares[a:b])) for a, b in pairwise(offset.tolist())]

    solver.passModel(lp)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        tell(end="infeasible")
        return
    if status == highspy.HighsModelStatus.kOptimal:
        solution = solver.getSolution()
        duals = np.asarray(solution.row_dual, dtype=np.float64)[n:]
        tell(duals=base64.b64encode(duals.tobytes()).decode(), labels=rounded(solution.col_value))
    whole = np.arange(labels, dtype=np.int32)
    solver.changeColsIntegrality(labels, whole, np.full(labels, int(highspy.HighsVarType.kInteger), dtype=np.uint8))
    if problem["start"] is not None:
        chosen = (offset[:-1] + np.array(problem["start"], dtype=np.int64)).astype(np.int32)
        values = np.zeros(labels)
        values[chosen] = 1.0
        solver.setSolution(labels, whole, values)
    solver.cbMipImprovingSolution += lambda event: tell(labels=rounded(event.data_out.mip_solution))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        tell(labels=rounded(solver.getSolution().col_value), end="optimal")
    elif status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        tell(end="infeasible")
    else:
        tell(end="stopped")
