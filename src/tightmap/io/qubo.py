"""Quadratic functions of binary variables: .qpbo, .bq, qbsolv's .qubo, dimod's COO text and JSON.

Inside a model label 0 is x = 0 and label 1 is x = 1.  Traps: .qpbo and .bq count from 1 and count every off-diagonal
entry twice (they mean x'Qx with a symmetric Q of which one half is written), the others count from 0 and once.
"""

from __future__ import annotations

import io
import json
import re
from array import array
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.expand import binary_quadratic
from tightmap.io.maxcut import read_edges
from tightmap.io.source import Source, check_total, finite_sum
from tightmap.io.tokens import Tokens, printable
from tightmap.model.model import Model
from tightmap.runtime.memory import require

BINARY = np.array([[0.0, 0.0], [0.0, 1.0]])
LARGEST = float(np.finfo(np.float64).max)
SPIN = np.array([[1.0, -1.0], [-1.0, 1.0]])
_TRIPLE = re.compile(r"\s*(\d{1,10})\s+(\d{1,10})\s+(\S+)\s*")


def _model(
    n: int, ends: IntArray, weights: FloatArray, content: int, spin: bool = False, plus_first: bool = False
) -> Model:
    """Entries (i, j, w), i = j a linear one; ``spin`` for values -1 and +1 (+1 first with ``plus_first``).

    ``content`` is the number of bytes of the file, which says how many variables it may only count.
    """
    check_total(n, 2.0 * n, "the number of variables", content)
    model = Model(np.full(n, 2, dtype=np.int64))
    diagonal = ends[:, 0] == ends[:, 1]
    nodes, place = np.unique(ends[diagonal, 0], return_inverse=True)
    linear = np.zeros(len(nodes))
    with np.errstate(over="ignore"):
        np.add.at(linear, place.reshape(-1), weights[diagonal])
    check_sums(linear)
    high, low = (1.0, -1.0) if spin else (1.0, 0.0)
    if plus_first:
        high, low = low, high
    if len(nodes):
        model.add_unaries(np.stack([low * linear, high * linear], axis=1), nodes)
    pairs = ends[~diagonal]
    model.add_factors(pairs.reshape(-1, 2), SPIN if spin else BINARY, weights[~diagonal])
    return model


def check_sums(sums: FloatArray) -> None:
    if not np.isfinite(sums).all():
        raise ModelError("the entries of a variable add up to more than a number can hold")


def read_qpbo(source: Source) -> Model:
    """toulbar2's .qpbo: ``N M`` and |M| lines ``i j w``; N < 0 means values +1 and -1, M < 0 maximise."""
    tokens = Tokens(source.data, comment=b"#")
    n = tokens.integer("the number of variables", low=-(2**31))
    m = tokens.integer("the number of entries", low=-(2**53))
    if 3 * abs(m) > len(tokens) - tokens.at:
        tokens.fail(tokens.at - 1, f"a number of entries, with {len(tokens) - tokens.at} tokens to follow")
    ends, weights = read_edges(tokens, abs(n), abs(m), 1)
    tokens.end()
    weights = _both_halves(ends, weights)
    if m < 0:
        weights = -weights
    if n < 0:  # s * s = 1: a diagonal entry is a constant
        diagonal = ends[:, 0] == ends[:, 1]
        model = _model(-n, ends[~diagonal], weights[~diagonal], len(source.data), spin=True, plus_first=True)
        model.add_constant(finite_sum(weights[diagonal], "the entries of the diagonal"))
        return model
    return _model(n, ends, weights, len(source.data))


def _both_halves(ends: IntArray, weights: FloatArray) -> FloatArray:
    """Weights with the off-diagonal ones doubled."""
    with np.errstate(over="ignore"):
        doubled = np.where(ends[:, 0] != ends[:, 1], 2.0 * weights, weights)
    check_sums(doubled)
    return doubled


def read_bq(source: Source) -> Model:
    """Biq Mac's .bq: ``n m`` and m lines ``i j q`` of a symmetric Q; minimise x'Qx."""
    tokens = Tokens(source.data, comment=b"#")
    n = tokens.integer("the number of variables", high=2**31 - 1)
    m = tokens.count("the number of entries", each=3)
    ends, weights = read_edges(tokens, n, m, 1)
    tokens.end()
    return _model(n, ends, _both_halves(ends, weights), len(source.data))


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """Numbered lines, one at a time."""
    return enumerate(io.TextIOWrapper(io.BytesIO(data), encoding="latin-1"), 1)


class _Triples:
    """Lines ``i j weight``, collected in 8 bytes a number."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.weights = array("d")
        self.lines = array("q")

    def add(self, number: int, line: str) -> None:
        found = _TRIPLE.fullmatch(line)
        try:
            weight = float(found[3]) if found and "_" not in found[3] else np.nan  # Python alone reads 1_000
        except ValueError:
            weight = np.nan
        if found is None or not np.isfinite(weight):
            raise ModelError(f"line {number}: expected 'i j weight', got {printable(line.strip().encode('latin-1'))}")
        self.numbers.extend((int(found[1]), int(found[2])))
        self.weights.append(weight)
        self.lines.append(number)

    def entries(self, high: int) -> tuple[IntArray, FloatArray]:
        """(m, 2) indices below ``high`` and (m,) weights."""
        ends = np.array(self.numbers, dtype=np.int64).reshape(-1, 2)
        wrong = (ends >= high).any(axis=1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ModelError(
                f"line {self.lines[row]}: expected 'i j weight' with indices below {high}, got {ends[row].tolist()}"
            )
        return ends, np.array(self.weights, dtype=np.float64)


def read_qbsolv(source: Source) -> Model:
    """qbsolv's .qubo: ``p qubo topology maxNodes nodes couplers`` and lines ``i j w``; entries count once."""
    rows, offset, nodes = _Triples(), 0.0, -1
    for number, line in _lines(source.data):
        words = line.split(None, 6)
        if not words or words[0].startswith("c"):
            if len(words) == 3 and words[1] == "offset":
                offset = _number(words[2], number)
            continue
        if words[0] == "p":
            if nodes >= 0 or len(words) != 6 or words[1] != "qubo" or not re.fullmatch(r"\d{1,10}", words[3]):
                raise ModelError(f"line {number}: expected one line 'p qubo topology maxNodes nodes couplers'")
            nodes = int(words[3])
            continue
        rows.add(number, line)
    if nodes < 0:
        raise ModelError("line 1: expected the line 'p qubo topology maxNodes nodes couplers'")
    ends, weights = rows.entries(nodes)
    model = _model(nodes, ends, weights, len(source.data))
    model.add_constant(offset)
    return model


def _number(text: str, line: int) -> float:
    try:
        value = float(text) if "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ModelError(f"line {line}: expected a finite number, got {printable(text.encode('latin-1'))}")
    return value


def write_qbsolv(model: Model, stream: IO[bytes], suffix: str) -> None:
    """Write a model of binary variables; the constant goes into a comment ``c offset NUMBER``."""
    offset, linear, edges, quadratic = binary_quadratic(model, suffix)
    lines = [f"c offset {offset!r}", f"p qubo 0 {len(linear)} {len(linear)} {len(edges)}"]
    lines += [f"{i} {i} {w!r}" for i, w in enumerate(linear.tolist())]
    lines += [f"{i} {j} {w!r}" for (i, j), w in zip(edges.tolist(), quadratic.tolist(), strict=True)]
    stream.write(("\n".join(lines) + "\n").encode())


def read_coo(source: Source) -> Model:
    """dimod's COO text: a line ``# vartype=BINARY`` or SPIN, then ``u v bias``; u = v is a linear bias."""
    spin: bool | None = None
    rows = _Triples()
    for number, line in _lines(source.data):
        if line.lstrip().startswith("#"):
            found = re.search(r"vartype\s*[=:]\s*(SPIN|BINARY)", line)
            spin = found[1] == "SPIN" if found else spin
        elif line.strip():
            rows.add(number, line)
    if spin is None:
        raise ModelError("line 1: expected '# vartype=BINARY' or '# vartype=SPIN'")
    ends, weights = rows.entries(2**31)
    return _model(int(ends.max(initial=-1)) + 1, ends, weights, len(source.data), spin=spin)


def read_dimod_json(source: Source) -> Model:
    """dimod's JSON of a BinaryQuadraticModel (schema 3); variables come in the order of ``variable_labels``."""
    data = source.data
    require(20.0 * len(data), f"a file of {len(data)} bytes")
    try:
        document: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"not a JSON file ({error})") from None
    if not isinstance(document, dict) or document.get("type") != "BinaryQuadraticModel":
        raise ModelError("expected dimod's JSON of a BinaryQuadraticModel (a field 'type' that says so)")
    if document.get("use_bytes"):
        raise ModelError("field 'use_bytes': expected false, biases in bytes are not supported")
    if document.get("variable_type") not in ("BINARY", "SPIN"):
        raise ModelError(f"field 'variable_type': expected BINARY or SPIN, got {_shown(document.get('variable_type'))}")

    def field(name: str, whole: bool) -> Any:
        values = document.get(name)
        flat: list[Any] = values if isinstance(values, list) else [None]
        kinds = (int,) if whole else (int, float)
        if not all(isinstance(v, kinds) and not isinstance(v, bool) and abs(v) <= LARGEST for v in flat):
            raise ModelError(f"field '{name}': expected a list of {'integers' if whole else 'finite numbers'}")
        return np.array(flat, dtype=np.int64 if whole and all(abs(v) < 2**62 for v in flat) else np.float64)

    linear, weights = field("linear_biases", False), field("quadratic_biases", False)
    head, tail = field("quadratic_head", True), field("quadratic_tail", True)
    n = len(linear)
    if not len(head) == len(tail) == len(weights):
        raise ModelError(
            f"expected as many heads and tails as quadratic biases, got {len(head)}, {len(tail)}, {len(weights)}"
        )
    ends = np.stack([head, tail], axis=1)
    if len(ends) and (ends.min() < 0 or ends.max() >= n):
        raise ModelError(f"fields 'quadratic_head' and 'quadratic_tail': expected positions in 0..{n - 1}")
    offset = document.get("offset", 0.0)
    if not isinstance(offset, int | float) or not abs(offset) < 1e300:
        raise ModelError(f"field 'offset': expected a finite number, got {_shown(offset)}")
    own = np.stack([np.arange(n), np.arange(n)], axis=1)
    every = np.concatenate([own, ends.astype(np.int64)])
    spin = document["variable_type"] == "SPIN"
    model = _model(n, every, np.concatenate([linear, weights]), len(source.data), spin=spin)
    model.add_constant(float(offset))
    return model


def _shown(value: Any) -> str:
    """A value of a JSON document for a message; a list may be nested too deeply to be printed."""
    return f"{value!r:.40}" if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def write_dimod_json(model: Model, stream: IO[bytes], suffix: str) -> None:
    """Write a model of binary variables as dimod's BinaryQuadraticModel, schema 3.0.0."""
    offset, linear, edges, quadratic = binary_quadratic(model, suffix)
    document = {
        "type": "BinaryQuadraticModel",
        "version": {"bqm_schema": "3.0.0"},
        "use_bytes": False,
        "index_type": "int32",
        "bias_type": "float64",
        "num_variables": len(linear),
        "num_interactions": len(edges),
        "variable_labels": list(range(len(linear))),
        "variable_type": "BINARY",
        "offset": offset,
        "info": {},
        "linear_biases": linear.tolist(),
        "quadratic_biases": quadratic.tolist(),
        "quadratic_head": edges[:, 0].tolist(),
        "quadratic_tail": edges[:, 1].tolist(),
    }
    stream.write((json.dumps(document, allow_nan=False) + "\n").encode())
