"""Small valid files of every format, and damage: bytes, numbers, pieces, arrays inside of archives."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np

import tightmap as tm

Arrays = dict[str, Any]
T = TypeVar("T")

WORDS = """-1 0 1 2 3 -0 +1 0.5 .5 5. 1e400 -1e400 1e308 -1e308 1e300 1e-320 nan inf -inf -nan infinity 1e9 1e18 1e19
255 256 65536 1000000 4000000 100000000 1000000000 2147483647 2147483648 4294967296 9007199254740993
9223372036854775807 9223372036854775808 18446744073709551616 99999999999999999999 -2147483648 -9223372036854775808
0x10 1_0 --1 1e 1e5e5 1.2.3 e x MARKOV BAYES p a e c i0 >= disj salldiff -BEGIN- MPE # // { } [ ] : , " ' \u00e9"""
EXTREMES = [*WORDS.split(), "", "\x00", "\xff", "\u2028", "1" * 400, "0." + "9" * 400, "x" * 300]
NUMBERS = [0, 1, 2, 3, 255, 10**5, 10**8, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1]
FLOATS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 0.0, -1.0, 1e6]
TYPES = ["f4", "f2", ">f8", "i1", "u1", ">i4", "u8", "i8", "?", "U3", "c16"]

TEXTS = {
    "uai": "MARKOV\n3\n2 2 3\n4\n1 0\n2 0 2\n2 0 1\n0\n2 0.3 0.7\n6 1 2 3 4 5 6\n4 1 0 0.5 1\n1 2.5\n",
    "LG": "MARKOV 3 2 2 3 3 1 0 2 0 2 2 0 1 2 -1 -4 6 0 -1 -2 -3 -inf -5 4 0 -7 -7 0\n",
    "wcsp": (
        "G 4 3 7 1000\n2 2 3 3\n1 0 0 2\n0 1\n1 4\n2 0 2 0 2\n0 1 1\n1 2 5\n-2 0 1 7 2\n0 0 0\n1 1 0\n2 0 1 7 -1\n"
        "2 2 3 -1 >= 1 2\n0 3 0\n2 2 3 -1 sdisj 1 1 2 2 3 4\n"
    ),
    "cfn": (
        '{"problem": {"name": "G", "mustbe": "<1000.0"},\n "variables": {"x0": 2, "x1": ["a", "b"], "x2": 3},\n'
        ' "functions": {\n   "f0": {"scope": ["x0"], "costs": [1, -4.5]},\n   "g": {"scope": [], "costs": [-2]},\n'
        '   "f1": {"scope": ["x0", "x2"], "costs": [0, 1, "inf", 3, 4, 5]},\n'
        '   "f2": {"scope": ["x0", "x1"], "defaultcost": 7, "costs": [0, "a", 0, 1, 1, 0]},\n'
        '   "f3": {"scope": ["x1", "x0"], "costs": "f4"}, "f4": {"scope": ["x0", "x1"], "costs": [1, 2, 3, 4]},\n'
        '   "f5": {"scope": ["x0", "x2"], "type": "<=", "params": [0, 1]}}}\n'
    ),
    "terse.cfn": "{{G >-20.0} {x0 [a b] 2 z 3}\n {[[x0] [1 4]] f1 [[0 z] [0 1 2 3 4 5]] // no\n [[0 1] 7 [a v0 0]],}}",
    "dd": "c a comment\np 3 3 5 2\na 0 0 0 -1\na 1 0 1 -2\na 2 1 1 -3\na 3 1 2 4\na 4 2 2 0.5\ne 0 2 -1\ne 1 3 2\n",
    "qpbo": "2 3\n1 1 1\n2 2 -2\n1 2 3\n",
    "spin.qpbo": "-2 -3\n1 1 1\n2 2 -2\n1 2 3\n",
    "bq": "# graph\n3 3\n1 1 1\n2 2 -2\n1 3 3\n",
    "qubo": "c offset 1.5\np qubo 0 3 2 1\n0 0 1\n1 1 -2\n0 2 3\n",
    "coo": "# vartype=SPIN\n0 0 1\n1 1 -2\n0 2 3\n",
    "mc": "3 2\n1 2 5\n2 3 -1\n",
    "txt": "MAX-CUT 3 2\n1 2 5\n2 3 -1.5\n",
    "json": (
        '{"type": "BinaryQuadraticModel", "version": {"bqm_schema": "3.0.0"}, "use_bytes": false, "num_variables": 2, '
        '"variable_labels": [0, 1], "variable_type": "BINARY", "offset": 1.5, "info": {}, "linear_biases": [1, -2.5], '
        '"quadratic_biases": [3], "quadratic_head": [0], "quadratic_tail": [1]}'
    ),
    "MPE": "MPE\n-BEGIN-\n1\n3 0 1 2\n-BEGIN-\n1\n3 1 1 0\n",
    "labels": "0 1 2 0 1\n",
    "evid": "2\n1 0 1\n2 1 0 2 1\n",
}


@dataclass(frozen=True)
class Seed:
    """A valid file: ``text``, or ``arrays`` for the formats that hold arrays; ``packed`` compresses it."""

    suffix: str
    kind: str = "model"
    text: bytes = b""
    arrays: Arrays = field(default_factory=dict)
    build: Callable[[Arrays], bytes] | None = None
    packed: str = ""
    options: dict[str, object] = field(default_factory=dict)

    def intact(self) -> bytes:
        """The file as it should be."""
        return self.pack(self.build(self.arrays) if self.build else self.text)

    def pack(self, data: bytes) -> bytes:
        """Content, compressed if that is asked for."""
        packers = {"": bytes, "gz": lambda d: gzip.compress(d, mtime=0), "bz2": bz2.compress, "xz": lzma.compress}
        return packers[self.packed](data)


def rich_model() -> tm.Model:
    """A factor of every kind."""
    model = tm.Model([2, 3, 3, 3, 1])
    model.add_unaries([[0.5, 1.0], [0.0, np.inf, 2.0]], nodes=[0, 1])
    model.add_constant(-1.5)
    model.add_factors([[0, 1], [0, 2]], np.arange(12.0).reshape(2, 2, 3))
    model.add_factors([[1, 2], [2, 3]], np.array([[0.0, 1, 2], [3, np.inf, 5], [6, 7, 8]]), weights=[1, 2])
    model.add_potts([[1, 2], [2, 3]], [1.0, -2.0])
    model.add_truncated_linear([[1, 2]], [1.0], 1.5)
    model.add_truncated_quadratic([[2, 3]], [0.5], 3.0)
    model.add_pn_potts([[1, 2, 3]], [1.0], label_costs=[0.0, 1.0, 2.0], disagreement=4.0)
    model.add_label_patterns([[1, 2, 3]], np.arange(5.0))
    model.add_sparse([[1, 2, 3]], [[0, 1, 2], [2, 2, 2]], [-1.0, np.inf], default=0.25)
    model.add_second_difference([[1, 2, 3]], [0.5], [[0.0] * s for s in (2, 3, 3, 3, 1)], limit=2.0)
    model.clamp({0: 1})
    return model


def build_npz(arrays: Arrays) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def build_npy(arrays: Arrays) -> bytes:
    stream = io.BytesIO()
    np.save(stream, next(iter(arrays.values())))
    return stream.getvalue()


def build_h5(arrays: Arrays) -> bytes:
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        for name, array in arrays.items():
            stored = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
            file.create_dataset(name, data=stored, compression="gzip" if array.ndim and array.size else None)
    return stream.getvalue()


def seeds() -> dict[str, Seed]:
    """Valid files by name."""
    found: dict[str, Seed] = {}
    for name, text in TEXTS.items():
        kind = {"MPE": "labels", "labels": "labels", "evid": "evidence"}.get(name, "model")
        found[name] = Seed(name.split(".")[-1], kind, text.encode())
    found["cost.uai"] = Seed("uai", text=TEXTS["LG"].replace("-inf", "inf").encode(), options={"values": "cost"})
    for name, packed in (("uai", "gz"), ("cfn", "xz"), ("wcsp", "bz2"), ("json", "gz")):
        found[f"{name}.{packed}"] = Seed(name, text=TEXTS[name].encode(), packed=packed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.npz"
        model = rich_model()
        tm.write(model, path)
        with np.load(path) as pack:
            found["npz"] = Seed("npz", arrays=dict(pack), build=build_npz)
        path = path.with_suffix(".h5")
        tm.write(model, path)
        arrays: Arrays = {}
        with h5py.File(path) as file:
            file.visititems(lambda n, d: arrays.__setitem__(n, d[()]) if isinstance(d, h5py.Dataset) else None)
    found["h5"] = Seed("h5", arrays=arrays, build=build_h5)
    found["h5.gz"] = Seed("h5", arrays=arrays, build=build_h5, packed="gz", options={"hard_threshold": 5.0})
    grid = {"D": np.arange(24.0).reshape(2, 4, 3), "hw": np.ones((2, 3)), "vw": np.ones((1, 4)), "V": 1.0 - np.eye(3)}
    found["grid.npz"] = Seed("npz", arrays=grid, build=build_npz)
    found["npy"] = Seed("npy", "labels", arrays={"labels": np.array([0, 1, 2])}, build=build_npy)
    return found


# ------------------------------------------------------------------------------------------------ damage


def pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    return choices[int(rng.integers(len(choices)))]


def damaged(seed: Seed, other: bytes, rng: np.random.Generator) -> bytes:
    """One to three kinds of damage inside, then perhaps some to the packed bytes."""
    if seed.build is not None:
        arrays = dict(seed.arrays)
        if rng.random() < 0.7:
            for _ in range(int(rng.integers(1, 4))):
                _damage_arrays(arrays, rng)
        data = seed.build(arrays)
        rough = rng.random() < 0.5
    else:
        data = seed.text
        for _ in range(int(rng.integers(1, 4))):
            data = _damage_text(data, other, rng)
        rough = False
    if seed.packed:
        data = seed.pack(data)
        rough = rng.random() < 0.4
    return _damage_bytes(data, other, rng) if rough else data


def _damage_bytes(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut off, taken out, doubled, or exchanged for those of another file."""
    new = bytearray(data or b"\x00")
    at = int(rng.integers(len(new)))
    length = int(rng.integers(1, 40))
    kind = rng.integers(6)
    if kind == 0:
        return bytes(new[:at])
    if kind == 1:
        for place in rng.integers(0, len(new), size=int(rng.integers(1, 7))):
            new[place] = int(rng.integers(256))
    elif kind == 2:
        del new[at : at + length]
    elif kind == 3:
        new[at:at] = new[at : at + length]
    elif kind == 4:
        new[at : at + 8] = pick(rng, NUMBERS).to_bytes(8, "little")
    else:
        place = int(rng.integers(len(other) + 1))
        new[at:] = other[place:]
    return bytes(new)


def _damage_text(data: bytes, other: bytes, rng: np.random.Generator) -> bytes:
    spans = [m.span() for m in re.finditer(rb"[^\s\[\]{},:\"]+", data)]
    kind = rng.integers(6)
    if kind == 0 or not spans:
        return _damage_bytes(data, other, rng)
    low, high = spans[int(rng.integers(min(len(spans), 8) if kind == 1 else len(spans)))]
    token = data[low:high]
    if kind == 1 and token.isdigit():  # a count at the beginning, larger than what follows
        new = str(int(token) * 10 ** int(rng.integers(0, 12)) + int(rng.integers(0, 3))).encode()
    elif kind <= 3:
        new = pick(rng, EXTREMES).encode()
    elif kind == 4:  # a stretch of tokens once more
        stop = spans[min(len(spans) - 1, spans.index((low, high)) + int(rng.integers(0, 6)))][1]
        new = data[low:stop] + b" " + data[low:stop]
        high = stop
    else:  # another token of the file
        place = spans[int(rng.integers(len(spans)))]
        new = data[place[0] : place[1]]
    return data[:low] + new + data[high:]


def _damage_arrays(arrays: Arrays, rng: np.random.Generator) -> None:
    """One array with an extreme number, another type or shape, a piece more or less, or missing."""
    name = pick(rng, list(arrays))
    array = np.array(arrays[name])
    kind = rng.integers(8)
    if kind == 0:
        del arrays[name]
        arrays[f"{name}x"] = array
    elif kind == 1:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays[name] = array.astype(pick(rng, TYPES)) if array.dtype.kind not in "Uc" else array[..., None]
    elif kind == 2:
        arrays[name] = array.reshape((-1, 1) if array.ndim == 1 else -1)
    elif kind == 3 and array.ndim:
        arrays[name] = array[: int(rng.integers(len(array) + 1))]
    elif kind == 4 and array.ndim:
        arrays[name] = np.concatenate([array] * pick(rng, [2, 3, 1000]))
    elif array.dtype.kind not in "iuf" or not array.size:
        arrays[name] = np.array(pick(rng, ["POTTS", "nonsense", "\u00e9"]))
    else:
        flat = array.reshape(-1).copy()
        place = int(rng.integers(min(8, flat.size) if rng.random() < 0.5 else flat.size))
        if array.dtype.kind == "f":
            with np.errstate(all="ignore"):
                flat[place] = pick(rng, FLOATS)
        else:
            limits = np.iinfo(array.dtype)
            number = pick(rng, [pick(rng, NUMBERS), int(limits.min), int(flat[place]) + 1, int(flat[place]) - 1])
            flat[place] = min(max(number, int(limits.min)), int(limits.max))
        arrays[name] = flat.reshape(array.shape)
