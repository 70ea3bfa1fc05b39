"""Graph matching problems (.dd, of Torresani, Kolmogorov and Rother).

    p <left> <right> <assignments> <edges>      a <id> <left> <right> <cost>      e <id> <id> <cost>

Each left and each right point is matched at most once; chosen assignments pay their cost, pairs of chosen assignments
the cost of their edge.  As a model: one variable per left point, its labels are its listed right points in the order
of the file, then (with ``unmatched=True``) one label of cost 0 for "not matched"; two left points that could both take
a right point have a table that forbids it.  With ``unmatched=False`` every left point that can be matched must be.
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graph import FloatArray, IntArray
from tightmap.io.source import MAX_BYTES, FormatWarning, Source, check_labels
from tightmap.io.tokens import group_rows
from tightmap.model import Model

_FIELDS = {b"p": 4, b"a": 4, b"e": 3}
_IGNORED = (b"c", b"i0", b"i1", b"n0", b"n1")


def _parse(data: bytes) -> dict[bytes, FloatArray]:
    """The numbers of the p, a and e lines, each as (lines, fields)."""
    cells: dict[bytes, list[bytes]] = {b"p": [], b"a": [], b"e": []}
    lines: dict[bytes, list[int]] = {b"p": [], b"a": [], b"e": []}
    for number, line in enumerate(data.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0] in _IGNORED or fields[0][:1] == b"c":
            continue
        kind = fields[0]
        if kind not in _FIELDS or len(fields) != 1 + _FIELDS[kind]:
            shown = line[:40].decode("ascii", "backslashreplace")
            raise ModelError(f"line {number}: expected 'p' or 'a' with 4 numbers or 'e' with 3, got '{shown}'")
        if not lines[b"p"] and kind != b"p":
            raise ModelError(f"line {number}: expected the line 'p left right assignments edges' first, got '{kind!r}'")
        cells[kind] += fields[1:]
        lines[kind].append(number)
    if len(lines[b"p"]) != 1:
        raise ModelError(f"expected one line 'p left right assignments edges', got {len(lines[b'p'])}")
    found: dict[bytes, FloatArray] = {}
    for kind, texts in cells.items():
        width = _FIELDS[kind]
        try:
            numbers = np.array(texts, dtype=np.float64).reshape(-1, width)
        except ValueError:
            numbers = np.array([_number(t) for t in texts]).reshape(-1, width)
        whole = numbers if kind == b"p" else numbers[:, :-1]
        with np.errstate(invalid="ignore"):
            good = np.isfinite(numbers).all(axis=1) & ((whole >= 0) & (whole == np.floor(whole))).all(axis=1)
        good &= (whole < 2**31).all(axis=1)
        if not good.all():
            row = int(np.argmin(good))
            shown = b" ".join(texts[row * width : (row + 1) * width])[:60].decode("ascii", "backslashreplace")
            raise ModelError(f"line {lines[kind][row]}: expected indices and a finite cost, got '{shown}'")
        found[kind] = numbers
    return found


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def read_dd(source: Source, *, unmatched: bool = True) -> Model:
    """Read a matching problem; ``unmatched=False`` asks for a complete matching of the left points."""
    found = _parse(source.data)
    n_left, n_right, n_assign, n_edges = (int(v) for v in found[b"p"][0])
    assign, edge = found[b"a"], found[b"e"]
    m = len(assign)
    if n_left > m + 1_000_000:
        raise ModelError(f"the header promises {n_left} left points, the file has only {m} assignments")
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
    check_labels(cards, "assignments")
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
    sizes = np.bincount(right) if len(right) else np.zeros(0, dtype=np.int64)
    if float((sizes.astype(np.float64) ** 2).sum()) > 1e8:
        raise ModelError("the right points are shared by too many left points: more than 10^8 conflicts")
    pairs = []
    for group in np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []:
        a, b = np.triu_indices(len(group), 1)
        pairs.append(np.stack([group[a], group[b]], axis=1))
    every = np.concatenate(pairs) if pairs else np.zeros((0, 2), dtype=np.int64)
    return every[left[every[:, 0]] != left[every[:, 1]]]


def _add_pairs(
    model: Model, left: IntArray, label: IntArray, ends: IntArray, costs: FloatArray, conflicts: IntArray
) -> None:
    """Dense tables on all pairs of left points that share an edge or a right point."""
    every = np.concatenate([ends, conflicts])
    value = np.concatenate([costs, np.full(len(conflicts), np.inf)])
    swap = left[every[:, 0]] > left[every[:, 1]]
    every[swap] = every[swap][:, ::-1]
    a, b = left[every[:, 0]], left[every[:, 1]]
    pair, inverse = np.unique(a * max(model.num_variables, 1) + b, return_inverse=True)
    inverse = inverse.reshape(-1)
    scopes = np.stack([pair // max(model.num_variables, 1), pair % max(model.num_variables, 1)], axis=1)
    shapes = model.cardinalities[scopes]
    needed = float(np.prod(shapes.astype(np.float64), axis=1).sum()) * 8
    if needed > MAX_BYTES:
        raise ModelError(f"the tables of {len(pair)} pairs of left points need {needed:.3g} bytes, limit {MAX_BYTES}")
    where: npt.NDArray[np.int64] = np.empty(len(pair), dtype=np.int64)
    for shape, part in group_rows(shapes):
        tables = np.zeros((len(part), *shape))
        where[:] = -1
        where[part] = np.arange(len(part))
        here = where[inverse] >= 0
        rows, ab = where[inverse[here]], label[every[here]]
        np.add.at(tables, (rows, ab[:, 0], ab[:, 1]), value[here])
        model.add_factors(scopes[part], tables)


def _report(source: Source, n_assign: int, m: int, n_edges: int, e: int, void: int) -> None:
    notes = []
    if (n_assign, n_edges) != (m, e):
        notes.append(f"the header promises {n_assign} assignments and {n_edges} edges, the file has {m} and {e}")
    if void:
        notes.append(f"{void} edges join assignments that exclude each other and were left out")
    if notes:
        warnings.warn(f"{source.path}: {'; '.join(notes)}", FormatWarning, stacklevel=6)
