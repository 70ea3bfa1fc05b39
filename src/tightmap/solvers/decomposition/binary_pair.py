"""The quadratic program of a pair of binary variables in AD3, in closed form (Martins et al. 2015).

With z_p the probability of label 1, the program of active_set.py is

    minimise  (z1 - c1)^2 / 2 + (z2 - c2)^2 / 2 - c12 z12

over the marginals of distributions, up to a constant and a factor.  For c12 >= 0 the best z12 is the smaller of z1 and
z2; for c12 < 0 the labels of the second variable are swapped.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.graph.graph import Kind
from tightmap.runtime.compiled import lean
from tightmap.solvers.decomposition.cheapest import cost_of

DENSE, POTTS = int(Kind.DENSE), int(Kind.POTTS)


@lean
def _unit(z):
    return min(1.0, max(0.0, z))


@lean
def _binary(c1, c2, c12):
    """The program above for c12 >= 0."""
    if c1 > c2 + c12:
        return _unit(c1), _unit(c2 + c12)
    if c2 > c1 + c12:
        return _unit(c1 + c12), _unit(c2)
    z = _unit(0.5 * (c1 + c2 + c12))
    return z, z


@lean
def _pair_cost(g, f, s, t, w):
    if g.kind[f] == POTTS:
        return g.weight[f] if s != t else 0.0
    if g.kind[f] == DENSE:
        return g.weight[f] * g.params[g.param[f] + 2 * s + t]
    w.own[0] = s
    w.own[1] = t
    return cost_of(g, f, w.own, w.labels)


@lean
def solve_binary_pair(g, f, eta, w):
    """The program of a pair of binary variables in closed form: the marginals in ``w.marginal``."""
    low = _pair_cost(g, f, 0, 0, w)
    first, second = _pair_cost(g, f, 1, 0, w) - low, _pair_cost(g, f, 0, 1, w) - low
    both = first + second - (_pair_cost(g, f, 1, 1, w) - low)
    c, i, j = w.linear, w.start[0], w.start[1]
    c1 = 0.5 * (1.0 - (c[i + 1] - c[i] + first) / eta)
    c2 = 0.5 * (1.0 - (c[j + 1] - c[j] + second) / eta)
    c12 = 0.5 * both / eta
    if c12 >= 0.0:
        z1, z2 = _binary(c1, c2, c12)
    else:  # with the labels of the second variable swapped
        z1, z2 = _binary(c1 + c12, 1.0 - c2, -c12)
        z2 = 1.0 - z2
    w.marginal[i] = 1.0 - z1
    w.marginal[i + 1] = z1
    w.marginal[j] = 1.0 - z2
    w.marginal[j + 1] = z2
