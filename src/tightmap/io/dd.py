"""Graph matching problems (.dd, of Torresani, Kolmogorov and Rother).

    p <left> <right> <assignments> <edges>      a <id> <left> <right> <cost>      e <id> <id> <cost>

Each left and each right point is matched at most once; chosen assignments pay their cost, pairs of chosen assignments
the cost of their edge.  As a model: one variable per left point, its labels are its listed right points in the order
of the file, then (with ``unmatched=True``) one label of cost 0 for "not matched"; two left points that could both take
a right point have a table that forbids it.  With ``unmatched=False`` every left point that can be matched must be.
"""

from __future__ import annotations

import io
import warnings

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.source import MAX_BYTES, FormatWarning, Source, check_total
from tightmap.io.tokens import group_rows, printable
from tightmap.model.model import Model
from tightmap.runtime.memory import require

_FIELDS = {b"p": 4, b"a": 4, b"e": 3}
MAX_CONFLICTS = 10_000_000  # pairs of assignments that exclude each other
_TOGETHER = 1 << 14  # lines parsed together
_IGNORED = (b"c", b"i0", b"i1", b"n0", b"n1")


class _Rows:
    """The numbers of all lines of one kind, parsed some thousand lines at a time."""

    def __init__(self, kind: bytes) -> None:
        self.kind, self.width = kind, _FIELDS[kind]
        self.texts: list[bytes] = []
        self.lines: list[int] = []
        self.parts: list[FloatArray] = [np.zeros((0, self.width))]

    def add(self, fields: list[bytes], line: int) -> None:
        self.texts += fields
        self.lines.append(line)
        if len(self.lines) == _TOGETHER:
            self.flush()

    def flush(self) -> None:
        texts, width = self.texts, self.width
        try:
            if b"_" in b"".join(texts):  # 1_000 is a number in Python alone
                raise ValueError
            numbers = np.array(texts, dtype=np.float64).reshape(-1, width)
        except ValueError:
            numbers = np.array([_number(t) for t in texts]).reshape(-1, width)
        whole = numbers if self.kind == b"p" else numbers[:, :-1]
        with np.errstate(invalid="ignore"):
            good = np.isfinite(numbers).all(axis=1) & ((whole >= 0) & (whole == np.floor(whole))).all(axis=1)
        good &= (whole < 2**31).all(axis=1)
        if not good.all():
            row = int(np.argmin(good))
            got = printable(b" ".join(texts[row * width : (row + 1) * width]))
            raise ModelError(f"line {self.lines[row]}: expected indices and a finite cost, got {got}")
        self.parts.append(numbers)
        self.texts, self.lines = [], []


def _parse(data: bytes) -> dict[bytes, FloatArray]:
    """The numbers of the p, a and e lines, each as (lines, fields)."""
    rows = {kind: _Rows(kind) for kind in _FIELDS}
    headers = 0
    for number, line in enumerate(io.BytesIO(data), 1):
        fields = line.split(None, 6)
        if not fields or fields[0] in _IGNORED or fields[0][:1] == b"c":
            continue
        kind = fields[0]
        if kind not in _FIELDS or len(fields) != 1 + _FIELDS[kind]:
            got = printable(line.strip())
            raise ModelError(f"line {number}: expected 'p' or 'a' with 4 numbers or 'e' with 3, got {got}")
        headers += kind == b"p"
        if not headers:
            raise ModelError(
                f"line {number}: expected the line 'p left right assignments edges' first, got {printable(kind)}"
            )
        rows[kind].add(fields[1:], number)
    if headers != 1:
        raise ModelError(f"expected one line 'p left right assignments edges', got {headers}")
    for kind in _FIELDS:
        rows[kind].flush()
    return {kind: np.concatenate(rows[kind].parts) for kind in _FIELDS}


def _number(text: bytes) -> float:
    try:
        return float(text) if b"_" not in text else float("nan")
    except ValueError:
        return float("nan")


def read_dd(source: Source, *, unmatched: bool = True) -> Model:
    """Read a matching problem; ``unmatched=False`` asks for a complete matching of the left points."""
    found = _parse(source.data)
    n_left, n_right, n_assign, n_edges = (int(v) for v in found[b"p"][0])
    assign, edge = found[b"a"], found[b"e"]
    m = len(assign)
    check_total(n_left, float(n_left) + m, "the left points", len(source.data))
    if (assign[:, 0] != np.arange(m)).any():
        row = int(np.argmax(assign[:, 0] != np.arange(m)))
        raise ModelError(f"assignment {row}: expected the ids 0, 1, 2, ... in order, got {assign[row, 0]:.0f}")
    left, right, cost = assign[:, 1].astype(np.int64), assign[:, 2].astype(np.int64), assign[:, 3]
    for name, points, number in (("left", left, n_left), ("right", right, n_right)):
        if m and points.max() >= number:
            row = int(np.argmax(points >= number))
            raise ModelError(f"assignment {row}: expected a {name} point in 0..{number - 1}, got {int(points[row])}")
    ends = edge[:, :2].astype(np.int64)
    if len(ends) and ends.max() >= m:
        row = int(np.argmax((ends >= m).any(axis=1)))
        raise ModelError(f"edge {row}: expected assignments in 0..{m - 1}, got {ends[row].tolist()}")

    # labels: the position of an assignment among those of its left point
    order = np.argsort(left, kind="stable")
    count = np.bincount(left, minlength=n_left).astype(np.int64)
    label = np.empty(m, dtype=np.int64)
    label[order] = np.arange(m) - np.repeat(np.cumsum(count) - count, count)
    cards = count + 1 if unmatched else np.maximum(count, 1)
    model = Model(cards)
    flat = np.zeros(int(model.offset[-1]))
    flat[model.offset[left] + label] = cost
    for (labels,), nodes in group_rows(cards[:, None]):
        model.add_unaries(flat[model.offset[nodes][:, None] + np.arange(labels)], nodes)

    void = (left[ends[:, 0]] == left[ends[:, 1]]) | (right[ends[:, 0]] == right[ends[:, 1]])
    _add_pairs(model, left, label, ends[~void], edge[~void, 2], _conflicts(left, right))
    _report(source, n_assign, m, n_edges, len(edge), int(void.sum()))
    return model


def _conflicts(left: IntArray, right: IntArray) -> IntArray:
    """(c, 2) pairs of assignments of different left points to one right point."""
    order = np.argsort(right, kind="stable")
    sizes = np.unique(right, return_counts=True)[1]
    number = float((sizes.astype(np.float64) * (sizes - 1)).sum()) / 2
    if number > MAX_CONFLICTS:
        raise ModelError(
            f"the right points are shared by too many left points: {number:.0f} pairs of assignments exclude each "
            f"other, the limit is {MAX_CONFLICTS}"
        )
    pairs = [np.zeros((0, 2), dtype=np.int64)]
    for group in np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []:
        a, b = np.triu_indices(len(group), 1)
        pairs.append(np.stack([group[a], group[b]], axis=1))
    every = np.concatenate(pairs)
    return every[left[every[:, 0]] != left[every[:, 1]]]


def _add_pairs(
    model: Model, left: IntArray, label: IntArray, ends: IntArray, costs: FloatArray, conflicts: IntArray
) -> None:
    """Dense tables on all pairs of left points that share an edge or a right point."""
    every = np.concatenate([ends, conflicts])
    swap = left[every[:, 0]] > left[every[:, 1]]
    every[swap] = every[swap][:, ::-1]
    a, b = left[every[:, 0]], left[every[:, 1]]
    pair, inverse = np.unique(a * max(model.num_variables, 1) + b, return_inverse=True)
    scopes = np.stack([pair // max(model.num_variables, 1), pair % max(model.num_variables, 1)], axis=1)
    shapes = model.cardinalities[scopes]
    sizes = np.prod(shapes.astype(np.float64), axis=1)
    what = f"the tables of {len(pair)} pairs of left points"
    if 8.0 * sizes.sum() > MAX_BYTES:
        raise ModelError(f"{what} need {8.0 * sizes.sum():.3g} bytes, the limit is {MAX_BYTES}")
    require(24.0 * sizes.sum(), what)
    # all tables one behind the other, then those of one shape together
    start = (np.cumsum(sizes) - sizes).astype(np.int64)
    flat = np.zeros(int(sizes.sum()))
    inverse = inverse.reshape(-1)
    entry = start[inverse] + label[every[:, 0]] * shapes[inverse, 1] + label[every[:, 1]]
    with np.errstate(over="ignore"):
        np.add.at(flat, entry[: len(ends)], costs)
    if not np.isfinite(flat[entry[: len(ends)]]).all():
        raise ModelError("the edges of a pair of assignments add up to more than a number can hold")
    flat[entry[len(ends) :]] = np.inf
    for shape, part in group_rows(shapes):
        tables = flat[start[part][:, None] + np.arange(shape[0] * shape[1])]
        model.add_factors(scopes[part], tables.reshape(-1, *shape))


def _report(source: Source, n_assign: int, m: int, n_edges: int, e: int, void: int) -> None:
    notes = []
    if (n_assign, n_edges) != (m, e):
        notes.append(f"the header promises {n_assign} assignments and {n_edges} edges, the file has {m} and {e}")
    if void:
        notes.append(f"{void} edges join assignments that exclude each other and were left out")
    if notes:
        warnings.warn(f"{source.path}: {'; '.join(notes)}", FormatWarning, stacklevel=6)
