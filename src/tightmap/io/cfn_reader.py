"""The reader of .cfn files: a walk over words and brackets."""

from __future__ import annotations

import itertools
import re
from typing import NoReturn

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import FloatArray, IntArray
from tightmap.io.cost_functions import RULES, Collector, Table, rule_costs, table_size, thresholds
from tightmap.io.source import check_entries, check_labels
from tightmap.io.tokens import printable
from tightmap.model.model import Model
from tightmap.runtime.memory import require

_COMMENT = re.compile(rb"(?m)^[ \t]*#[^\n]*|//[^\n]*")
_TOKEN = re.compile(rb'[{}\[\]]|[^\s":,{}\[\]]+')
_BLANK = re.compile(rb"[\s,\[\]{}]")
_PIECE = 1 << 20
_SEPARATORS = bytes.maketrans(b'":,{}\f', b"   [] ")


class Reader:
    """A cursor over the tokens; both kinds of bracket are ``[`` and ``]``."""

    def __init__(self, data: bytes) -> None:
        self.data = _COMMENT.sub(lambda m: b" " * len(m[0]), data)
        self.tokens = _tokens(self.data)
        self.at = 0
        self.terse = False
        self.top = np.inf
        self.sign = 1.0
        self.arithmetic = 0.0  # entries of the tables of arithmetic functions

    # ------------------------------------------------------------------ tokens

    def fail(self, expected: str, at: int | None = None) -> NoReturn:
        index = self.at if at is None else at
        match = next(itertools.islice(_TOKEN.finditer(self.data), index, None), None)
        byte = match.start() if match else len(self.data)
        got = printable(self.tokens[index].encode("latin-1")) if index < len(self.tokens) else "the end of the file"
        line = self.data.count(b"\n", 0, byte) + 1
        raise ModelError(f"token {index + 1} (line {line}, byte {byte}): expected {expected}, got {got}")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self, expected: str) -> str:
        if self.at >= len(self.tokens):
            self.fail(expected)
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str, what: str) -> None:
        if self.peek() != token:
            self.fail(what)
        self.at += 1

    def tag(self, *words: str) -> None:
        """A field's name, which the terse form leaves out."""
        if not self.terse:
            if self.peek() not in words:
                self.fail(f"the field '{words[0]}'")
            self.at += 1

    def words(self, what: str) -> list[str]:
        """The words of a bracketed list."""
        self.expect("[", f"[ and {what}")
        try:
            stop = self.tokens.index("]", self.at)
        except ValueError:
            self.at = len(self.tokens)
            self.fail(f"] behind {what}")
        found = self.tokens[self.at : stop]
        if "[" in found:
            self.fail(f"{what} without brackets inside", self.at + found.index("["))
        self.at = stop + 1
        return found

    def numbers(self, texts: list[str], start: int, what: str) -> FloatArray:
        """Numbers of tokens start, start + 1, ...; the word inf is legal, nan is not."""
        try:
            if "_" in "".join(texts):  # 1_000 is a number in Python alone
                raise ValueError
            values = np.array([float(t) for t in texts])
        except ValueError:
            values = np.array([_float(t) for t in texts])
        if np.isnan(values).any():
            self.fail(what, start + int(np.argmax(np.isnan(values))))
        return values

    def costs(self, raw: FloatArray) -> FloatArray:
        """Energies of the costs of the file; what its bound forbids is known when all of them have been read."""
        if self.sign > 0 and (raw == -np.inf).any():
            self.fail("costs above -inf; the list ends here", self.at - 1)
        return np.where(np.isinf(raw), np.inf, self.sign * raw)

    # ------------------------------------------------------------------ structure

    def model(self) -> Model:
        self.expect("[", "{")
        self.terse = self.peek() != "problem"
        self.tag("problem")
        self.expect("[", "{ of the problem")
        self.tag("name")
        self.next("the name of the problem")
        self.tag("mustbe")
        self.bound()
        self.expect("]", "} behind the problem")
        self.tag("variables")
        self.variables()
        self.tables: list[tuple[IntArray, Table]] = []
        self.tag("functions")
        self.functions()
        if self.at < len(self.tokens):  # published files lack this last one, and toulbar2 takes them
            self.expect("]", "} at the end")
        if self.at < len(self.tokens):
            self.fail("the end of the file")
        return self.build()

    def build(self) -> Model:
        """The model; costs with which no labelling stays within the bound become +inf."""
        sizes = [table_size(self.cards[scope]) for scope, _ in self.tables]
        least = np.array([t.least(size) for (_, t), size in zip(self.tables, sizes, strict=True)])
        pool = Collector(Model(self.cards))
        for (scope, table), threshold in zip(self.tables, thresholds(least, self.top).tolist(), strict=True):
            table.forbidding(threshold).add(pool, scope)
        pool.flush()
        return pool.model

    def bound(self) -> None:
        text = self.next("the bound, < or > and a number")
        if text[:1] not in ("<", ">"):
            self.fail("the bound, < or > and a number", self.at - 1)
        number = text[1:] or self.next("a number")
        value = self.numbers([number], self.at - 1, "a number")[0]
        self.sign = 1.0 if text[0] == "<" else -1.0
        self.top = self.sign * float(value)
        if self.top == -np.inf:
            self.fail("a bound that some number meets", self.at - 1)

    def variables(self) -> None:
        self.expect("[", "{ of the variables")
        self.names: dict[str, int] = {}
        self.value_names: list[dict[str, int] | None] = []
        cards: list[int] = []
        while self.peek() != "]":
            name = f"x{len(cards)}"
            if self.peek() != "[" and not self.peek()[:1].isdigit() and self.peek()[:1] not in "-+":
                name = self.next("the name of a variable")
            if self.peek() == "[":
                labels = self.words("the values of a variable")
                self.value_names.append({v: i for i, v in enumerate(labels)})
                cards.append(len(labels))
            else:
                text = self.next("the values or the size of a variable")
                if not re.fullmatch(r"\+?\d{1,10}", text):
                    self.fail("a number of values (intervals, with negative sizes, are not supported)", self.at - 1)
                self.value_names.append(None)
                cards.append(int(text))
            if name in self.names:
                self.fail(f"a new name, {printable(name.encode('latin-1'))} is taken", self.at - 1)
            self.names[name] = len(cards) - 1
        self.at += 1
        self.cards = np.array(cards, dtype=np.int64)
        check_labels(self.cards, "variables", len(self.data))

    def functions(self) -> None:
        self.expect("[", "{ of the functions")
        known: dict[str, tuple[list[int], Table]] = {}
        waiting: list[tuple[str, IntArray, int]] = []
        while self.peek() != "]":
            name = "" if self.peek() == "[" else self.next("the name of a function, or {")
            self.expect("[", "{ of a function")
            self.tag("scope")
            start = self.at + 1
            scope = self.scope(self.words("the variables of a function"), start)
            result = self.body(scope)
            self.expect("]", "} behind a function")
            if isinstance(result, str):
                waiting.append((result, scope, self.at - 2))
            else:
                known[name] = (self.cards[scope].tolist(), result)
                self.tables.append((scope, result))
        self.at += 1
        for name, scope, at in waiting:
            if name not in known or known[name][0] != self.cards[scope].tolist():
                self.fail("the name of a function with the same label counts", at)
            self.tables.append((scope, known[name][1]))

    def scope(self, words: list[str], start: int) -> IntArray:
        scope = []
        for p, word in enumerate(words):
            index = int(word) if re.fullmatch(r"\d{1,10}", word) else self.names.get(word, -1)
            if not 0 <= index < len(self.cards):
                self.fail(f"a variable (a name, or an index in 0..{len(self.cards) - 1})", start + p)
            if index in scope:
                self.fail("distinct variables in a scope", start + p)
            scope.append(index)
        return np.array(scope, dtype=np.int64)

    def body(self, scope: IntArray) -> Table | str:
        """What stands behind the scope: a table, or the name of a shared one."""
        if (not self.terse and self.peek() == "type") or (self.terse and self._word_then_bracket()):
            self.tag("type")
            return self.rule(scope)
        default: float | None = None
        if self.peek() == "defaultcost" or (self.terse and self.peek() not in ("[", "]") and self.number_next()):
            self.tag("defaultcost")
            default = float(self.costs(self.numbers([self.next("the default cost")], self.at - 1, "a cost"))[0])
            if self.peek() == "]":  # a constant, or a function without exceptions
                return Table(default, np.zeros((0, len(scope)), dtype=np.int64), np.zeros(0))
        self.tag("costs")
        if self.peek() != "[":
            if default is not None:
                self.fail("[ and costs (a shared table has no default cost)")
            if self.number_next() and not len(scope):
                cost = self.costs(self.numbers([self.next("a cost")], self.at - 1, "a cost"))
                return Table(0.0, None, cost)
            return self.next("[ and costs, or the name of a function")
        start = self.at + 1
        texts = self.words("costs")
        if default is not None:
            return self.sparse(scope, default, texts, start)
        shape = self.cards[scope]
        size = float(np.prod(shape.astype(np.float64)))
        if len(texts) != size:
            self.fail(f"{size:.0f} costs, got {len(texts)}; the list ends here", self.at - 1)
        flat = self.costs(self.numbers(texts, start, "a cost"))
        return Table(0.0, None, flat)

    def number_next(self) -> bool:
        return not np.isnan(_float(self.peek()))

    def _word_then_bracket(self) -> bool:
        following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""
        return self.peek() not in ("[", "]") and following == "[" and not self.number_next()

    def sparse(self, scope: IntArray, default: float, texts: list[str], start: int) -> Table:
        width = len(scope) + 1
        if len(texts) % width:
            self.fail(f"rows of {len(scope)} values and a cost; the list ends here", self.at - 1)
        labels = np.zeros((len(texts) // width, len(scope)), dtype=np.int64)
        for p, i in enumerate(scope.tolist()):
            names = self.value_names[i] or {}
            for r, word in enumerate(texts[p::width]):
                label = int(word) if re.fullmatch(r"\d{1,10}", word) else names.get(word, -1)
                if label < 0 and self.value_names[i] is None and re.fullmatch(r"v\d{1,10}", word):
                    label = int(word[1:])
                if not 0 <= label < self.cards[i]:
                    self.fail(f"a value of variable {i}", start + r * width + p)
                labels[r, p] = label
        raw = [
            self.numbers([t], start + r * width + width - 1, "a cost")[0]
            for r, t in enumerate(texts[width - 1 :: width])
        ]
        if len({tuple(row) for row in labels.tolist()}) != len(labels):
            self.fail("every tuple once; the list ends here", self.at - 1)
        return Table(default, labels, self.costs(np.array(raw, dtype=np.float64)))

    def rule(self, scope: IntArray) -> Table:
        word = self.next("a type of function")
        if word not in RULES:
            self.fail(f"a type out of {' '.join(RULES)} (others are not supported)", self.at - 1)
        self.tag("params", "parameters")
        start = self.at + 1
        values = self.numbers(self.words("parameters"), start, "a number")
        if len(values) != RULES[word][0] or len(scope) != 2 or not np.isfinite(values).all():
            self.fail(f"2 variables and {RULES[word][0]} finite parameters for '{word}'", self.at - 1)
        if self.sign < 0:
            self.fail("a minimisation (arithmetic functions under '>' are not supported)", self.at - 1)
        cards = self.cards[scope].tolist()
        self.arithmetic += float(cards[0]) * float(cards[1])
        check_entries(self.arithmetic, "the arithmetic functions of this file")
        return Table(0.0, None, rule_costs(word, values.tolist(), (cards[0], cards[1])))


def _tokens(data: bytes) -> list[str]:
    """Words and brackets; equal ones are one object, so that a long file takes 8 bytes for most of them."""
    first = _TOKEN.search(data)
    if first and first[0] not in (b"{", b"["):
        data = data[: first.start() + 64]  # the first token is wrong already, and its message needs no more
    require(8.0 * len(data), f"a file of {len(data)} bytes")
    found: list[str] = []
    same: dict[str, str] = {}
    low = 0
    while low < len(data):
        stop = low + _PIECE
        if stop < len(data):  # up to the next blank: no word is cut in two
            gap = _BLANK.search(data, stop)
            stop = gap.start() if gap else len(data)
        plain = data[low:stop].translate(_SEPARATORS).replace(b"[", b" [ ").replace(b"]", b" ] ")
        words = plain.decode("latin-1").split()
        found += map(same.setdefault, words, words)
        low = stop
    return found


def _float(text: str) -> float:
    try:
        return float(text) if "_" not in text else float("nan")
    except ValueError:
        return float("nan")
