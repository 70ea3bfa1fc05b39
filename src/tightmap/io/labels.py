"""Labellings and evidence: UAI result files (.MPE, .MAP), .evid, plain text, .npy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import IO

import numpy as np
import numpy.typing as npt

from tightmap.errors import ModelError
from tightmap.graph.graph import IntArray
from tightmap.io.npz import read_npy
from tightmap.io.source import FormatWarning, Source
from tightmap.io.tokens import Tokens
from tightmap.model.checks import evidence_pairs

RESULTS = {".mpe": "MPE", ".map": "MAP"}
MAX_LABEL = 2**31 - 1


# ------------------------------------------------------------------------------------------------ labellings


def read_labels_from(source: Source) -> IntArray:
    """Labels of all variables: a result file, an .npy array, or integers separated by blanks."""
    if source.suffix == ".npy":
        array = read_npy(source.data, "the array")
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        if array.dtype.kind == "f" and (np.floor(array) == array).all() and np.abs(array).max(initial=0.0) < 2**31:
            array = array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise ModelError(f"expected an array of integers, got {array.dtype}")
        if array.size and (array.min() < 0 or array.max() > MAX_LABEL):
            raise ModelError(f"labels: expected integers in 0..{MAX_LABEL}, got {array.min()}..{array.max()}")
        return array.astype(np.int64).reshape(-1)
    first = source.data.split(None, 1)[:1]
    if first and (first[0][:1].isalpha() or first[0] == b"-BEGIN-"):
        return _result(source.data)
    tokens = Tokens(source.data, comment=b"#")
    return tokens.integers(len(tokens), "a label", high=MAX_LABEL)


def _result(data: bytes) -> IntArray:
    """The last solution of an MPE or MAP result file: ``n v0 ... v(n-1)``, perhaps behind the number of samples."""
    tokens = Tokens(data, mixed=True)
    words = np.flatnonzero(np.isnan(tokens.values))
    if not len(words):  # "inf" and the like begin with a letter too
        tokens.fail(0, "a label, or the word MPE or MAP")
    for w in words:
        text = tokens.text(int(w)).upper()
        if text not in (b"MPE", b"MAP", b"-BEGIN-"):
            tokens.fail(int(w), "an MPE or MAP result (the words MPE, MAP and -BEGIN- only)")
    tokens.at = int(words[-1]) + 1
    rest = len(tokens) - tokens.at
    if rest >= 2 and tokens.values[tokens.at] == 1 and tokens.values[tokens.at + 1] == rest - 2:
        tokens.at += 1  # the layout of 2010: one sample
    n = tokens.count("the number of variables")
    labels = tokens.integers(n, "a label", high=MAX_LABEL)
    tokens.end()
    return labels


def write_labels_to(labels: npt.ArrayLike, stream: IO[bytes], suffix: str) -> None:
    """Write labels as a result file (.MPE, .MAP), as an .npy array of the given shape, or one line of text."""
    try:
        array = np.asarray(labels)
    except ValueError as error:  # rows of different lengths
        raise ModelError(f"labels: expected integers ({error})") from None
    if array.size == 0:
        array = array.astype(np.int64)
    if not np.issubdtype(array.dtype, np.integer):
        raise ModelError(f"labels: expected integers, got {array.dtype}")
    if suffix == ".npy":
        np.lib.format.write_array(stream, np.ascontiguousarray(array, dtype=np.int64), allow_pickle=False)
        return
    flat = array.ravel().tolist()
    line = " ".join(map(str, [len(flat), *flat] if suffix in RESULTS else flat))
    stream.write((f"{RESULTS[suffix]}\n" if suffix in RESULTS else "").encode() + line.encode() + b"\n")


# ------------------------------------------------------------------------------------------------ evidence


def read_evidence_from(source: Source, sample: int = 0) -> dict[int, int]:
    """Evidence as {variable: label}.  Layouts: count and pairs (2008, 2014 and later), or samples of these (2010)."""
    tokens = Tokens(source.data, comment=b"#")
    if len(tokens) == 0:
        return {}
    first = tokens.integer("the number of evidence variables or samples")
    plain = len(tokens) == 1 + 2 * first
    samples = _samples(tokens, first)
    if plain and samples is not None and first > 0:
        warnings.warn(
            f"{source.path}: both layouts of evidence fit; read as {first} pairs (2008, 2014), not as {first} samples",
            FormatWarning,
            stacklevel=4,
        )
    if plain:
        samples = [(1, first)]
    if samples is None:
        expected = f"{first} pairs (variable, label), or {first} samples of such pairs"
        raise ModelError(f"evidence: expected {expected}, got {len(tokens) - 1} tokens behind the first")
    if not isinstance(sample, int) or not 0 <= sample < max(len(samples), 1):
        raise ModelError(f"evidence: sample {sample!a:.40} does not exist, the file has {len(samples)}")
    if not samples:
        return {}
    tokens.at, pairs = samples[sample]
    found: dict[int, int] = {}
    for variable, label in tokens.integers(2 * pairs, "a variable or a label").reshape(-1, 2).tolist():
        if found.setdefault(variable, label) != label:
            raise ModelError(f"evidence: variable {variable} is given both {found[variable]} and {label}")
    return found


def _samples(tokens: Tokens, number: int) -> list[tuple[int, int]] | None:
    """(place of the first pair, pairs) of every sample when the layout of 2010 uses up all tokens, else None."""
    at, samples = 1, []
    for _ in range(number):
        if at >= len(tokens) or not float(tokens.values[at]).is_integer() or tokens.values[at] < 0:
            return None
        pairs = int(tokens.values[at])
        samples.append((at + 1, pairs))
        at += 1 + 2 * pairs
        if at > len(tokens):
            return None
    return samples if at == len(tokens) else None


def write_evidence_to(evidence: Mapping[int, int], stream: IO[bytes]) -> None:
    """Write {variable: label} in the layout of 2008 and of 2014 and later."""
    nodes, labels = evidence_pairs(evidence)
    if min(nodes.min(initial=0), labels.min(initial=0)) < 0:
        raise ModelError("evidence: expected variables and labels of at least 0, got a negative one")
    pairs = sorted(zip(nodes.tolist(), labels.tolist(), strict=True))
    stream.write((" ".join(map(str, [len(pairs), *(v for pair in pairs for v in pair)])) + "\n").encode())
