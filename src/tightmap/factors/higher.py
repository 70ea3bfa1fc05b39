"""The operations of ``kernels.py`` on the kinds beyond pairs: tables of three and more variables, P^n-Potts, patterns,
sparse tables and second differences.

They are called through the functions at the end of this file, which are empty for models of pairs (``PairArrays``):
such a model, by far the most frequent, does not wait for the compilation of kinds that it does not have.
"""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import Any

from numba.extending import overload

from tightmap.factors.dense import dense_add_slice, dense_contract, dense_key, dense_minmarg
from tightmap.factors.pattern import pattern_rank
from tightmap.factors.pattern_kernels import pattern_contract, pattern_minmarg
from tightmap.factors.pn_potts import pn_add_slice, pn_contract, pn_minmarg, pn_value
from tightmap.factors.second_difference import second_add_slice, second_contract, second_minmarg, second_value
from tightmap.factors.sparse import sparse_add_slice, sparse_contract, sparse_lookup, sparse_minmarg
from tightmap.graph.graph import Kind, PairArrays
from tightmap.runtime.compiled import lean

DENSE = int(Kind.DENSE)
PN_POTTS = int(Kind.PN_POTTS)
PATTERN = int(Kind.PATTERN)
SPARSE = int(Kind.SPARSE)


@lean
def pattern_value(g, f, labels):
    scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
    return g.params[g.param[f] + pattern_rank(labels, scope, -1, 0)]


@lean
def _pattern_add_slice(g, f, pos, labels, out, scale):
    scope = g.scope[g.scope_start[f] : g.scope_start[f + 1]]
    for s in range(g.cards[scope[pos]]):
        out[s] += scale * g.weight[f] * g.params[g.param[f] + pattern_rank(labels, scope, pos, s)]


def _value(g, f, labels):
    kind = g.kind[f]
    w = g.weight[f]
    if kind == DENSE:
        return w * g.params[g.param[f] + dense_key(g, f, labels)]
    if kind == PN_POTTS:
        return w * pn_value(g, f, labels)
    if kind == PATTERN:
        return w * pattern_value(g, f, labels)
    if kind == SPARSE:
        return w * sparse_lookup(g, f, dense_key(g, f, labels))
    return w * second_value(g, f, labels)


def _add_slice(g, f, pos, labels, out, scale):
    kind = g.kind[f]
    if kind == DENSE:
        dense_add_slice(g, f, pos, labels, out, scale)
    elif kind == PN_POTTS:
        pn_add_slice(g, f, pos, labels, out, scale)
    elif kind == SPARSE:
        sparse_add_slice(g, f, pos, labels, out, scale)
    elif kind == PATTERN:
        _pattern_add_slice(g, f, pos, labels, out, scale)
    else:
        second_add_slice(g, f, pos, labels, out, scale)


def _contract(g, f, pos, x, start, out, work):
    kind = g.kind[f]
    if kind == DENSE:
        dense_contract(g, f, pos, x, start, out, work)
    elif kind == PN_POTTS:
        pn_contract(g, f, pos, x, start, out)
    elif kind == SPARSE:
        sparse_contract(g, f, pos, x, start, out)
    elif kind == PATTERN:
        pattern_contract(g, f, pos, x, start, out, work)
    else:
        second_contract(g, f, pos, x, start, out, work)


def _minmarg(g, f, pos, h, start, out, work):
    kind = g.kind[f]
    if kind == DENSE:
        dense_minmarg(g, f, pos, h, start, out, work)
    elif kind == PN_POTTS:
        pn_minmarg(g, f, pos, h, start, out)
    elif kind == PATTERN:
        pattern_minmarg(g, f, pos, h, start, out, work)
    elif kind == SPARSE:
        sparse_minmarg(g, f, pos, h, start, out, work)
    else:
        second_minmarg(g, f, pos, h, start, out, work)


# ---------------------------------------------------------------------------------------------- nothing for pairs


def only_pairs(g: Any) -> bool:
    """Whether the Numba type g is that of a model of pairs."""
    return issubclass(g.instance_class, PairArrays)


def _for_pairs_nothing(implementation: Any, nothing: Any) -> Any:
    """A function that is the implementation, or nothing when the model has only pairs: chosen by the type of the model,
    inside compiled functions when they are compiled."""

    @wraps(implementation)
    def stub(g, *rest):
        return nothing(g, *rest) if isinstance(g, PairArrays) else implementation(g, *rest)

    def choose(g, *_):
        return nothing if only_pairs(g) else implementation

    # Numba wants the parameters by name
    choose.__signature__ = signature(implementation)  # type: ignore[attr-defined]
    overload(stub, jit_options={"nogil": True, "forceinline": True})(choose)
    return stub


higher_value = _for_pairs_nothing(_value, lambda g, f, labels: 0.0)
higher_add_slice = _for_pairs_nothing(_add_slice, lambda g, f, pos, labels, out, scale: None)
higher_contract = _for_pairs_nothing(_contract, lambda g, f, pos, x, start, out, work: None)
higher_minmarg = _for_pairs_nothing(_minmarg, lambda g, f, pos, h, start, out, work: None)
