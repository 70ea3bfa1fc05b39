"""Cost function networks in toulbar2's .cfn format: JSON in spirit, not in letter.

Quotes, commas and colons count as blanks, ``{`` equals ``[``, the order of fields is fixed, keys may repeat.  So the
file is a stream of words and brackets, and that is how it is read here (cfn_reader.py walks over it):

    { problem: {name, mustbe: <bound}
      variables: {name: [values] or size, ...}
      functions: {name: {scope: [...] ...}, ...} }

``mustbe`` says whether costs are minimised (``<``) or maximised (``>``; they are negated here), and which costs forbid.
"""

from __future__ import annotations

from typing import IO

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray
from tightmap.io.cfn_reader import Reader
from tightmap.io.expand import check_expansion, tables, unary_tables
from tightmap.io.source import Source
from tightmap.io.wcsp import check_digits
from tightmap.model.model import Model


def read_cfn(source: Source) -> Model:
    """Read a .cfn file; costs at or above its bound become +inf, a maximisation is negated."""
    return Reader(source.data).model()


def write_cfn(model: Model, stream: IO[bytes], suffix: str, *, digits: int | None = None) -> None:
    """Write strict JSON that toulbar2 reads too; ``digits`` behind the point: by default as needed, at most 9."""
    check_expansion(model, suffix)
    power = check_digits(digits, model)
    bound = 1.0
    lines: list[str] = []

    def put(scope: list[int], costs: FloatArray) -> None:
        nonlocal bound
        flat = costs.ravel()
        finite = flat[np.isfinite(flat)]
        bound += max(float(np.abs(finite).max(initial=0.0)), 0.0)
        texts = [f"{v + 0.0:.{power}f}" if v < np.inf else '"inf"' for v in flat.tolist()]
        names = ", ".join(f'"x{i}"' for i in scope)
        lines.append(f'  "f{len(lines)}": {{"scope": [{names}], "costs": [{", ".join(texts)}]}}')

    if model.constant:
        put([], np.array([model.constant]))
    for i, costs in unary_tables(model):
        put([i], costs)
    for scopes, table in tables(model):
        for scope, costs in zip(scopes.tolist(), table, strict=True):
            put(scope, costs)
    if bound * 10.0**power >= 2.0**62:
        raise ModelError(
            f"costs up to {bound:.3g} with {power} digits need more than 62 bits; write fewer (option digits)"
        )
    top = f"{np.ceil(bound):.{power}f}"
    variables = ",\n".join(f'  "x{i}": {s}' for i, s in enumerate(model.cardinalities.tolist()))
    stream.write(
        f'{{"problem": {{"name": "tightmap", "mustbe": "<{top}"}},\n "variables": {{\n{variables}}},\n'.encode()
    )
    stream.write((' "functions": {\n' + ",\n".join(lines) + "}}\n").encode())
