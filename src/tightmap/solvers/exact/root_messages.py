"""Message passing in integers at the root of the exact search.

TRW-S (Kolmogorov 2006) and its form for functions of any order (Kolmogorov 2015), written as a sequence of the same
moves of cost that soft arc consistency makes: nothing becomes negative, c0 never falls, and the search goes on from the
costs as they then are.  Its bound is that of a good dual of the linear relaxation, above what local consistency finds.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs
from __future__ import annotations

from tightmap.runtime.compiled import lean
from tightmap.solvers.exact.trailed_costs import ARCS, BACK, HUGE, NEAR, OFF, ROW, SHIFT, TO, node_consistency, put
from tightmap.solvers.exact.wide_functions import living_tuples, project


@lean
def message_pass(net, s, forward):
    """One pass: each variable gathers all that its functions can give, keeps the minimum in c0 and lends equal shares
    to the functions that lead on.  False when c0 reaches the upper bound.
    """
    n = len(net.node) - 1
    value, domain = s.value, s.domain[0]
    sizes = 1 + len(net.unary)
    for turn in range(n):
        i = turn if forward else n - 1 - turn
        oi = net.node[i, OFF]
        ni = value[sizes + i]
        ahead, behind = 0, 0
        for arc in range(net.node[i, ARCS], net.node[i + 1, ARCS]):
            j = net.arc[arc, TO]
            if (j > i) == forward:
                ahead += 1
            else:
                behind += 1
            oj = net.node[j, OFF]
            cj = net.node[j + 1, OFF] - oj
            nj = value[sizes + j]
            mine, theirs = net.arc[arc, SHIFT], net.arc[net.arc[arc, BACK], SHIFT]
            for k in range(ni):
                x = domain[oi + k]
                r = net.arc[arc, ROW] + x * cj
                low = HUGE
                for h in range(nj):
                    y = domain[oj + h]
                    low = min(low, net.tables[r + y] - value[theirs + y])
                low -= value[mine + x]
                if low > 0:
                    put(s, mine + x, value[mine + x] + low)
                    put(s, 1 + oi + x, value[1 + oi + x] + low)
            s.counters[0].work += ni * nj + 2
        for q in range(net.node[i, NEAR], net.node[i + 1, NEAR]):
            f, p = net.near[q, 0], net.near[q, 1]
            if living_tuples(net, s, f) > 0:
                width = net.wide[f + 1, 0] - net.wide[f, 0]
                ahead += p != (width - 1 if forward else 0)
                behind += p != (0 if forward else width - 1)
                project(net, s, f, p)
        if not node_consistency(net, s, i):
            return False
        share = max(1, ahead, behind)
        for k in range(value[sizes + i]):
            x = domain[oi + k]
            lent = value[1 + oi + x] // share
            if lent == 0:
                continue
            parts = 0
            for arc in range(net.node[i, ARCS], net.node[i + 1, ARCS]):
                if (net.arc[arc, TO] > i) == forward:
                    at = net.arc[arc, SHIFT] + x
                    put(s, at, value[at] - lent)
                    parts += 1
            for q in range(net.node[i, NEAR], net.node[i + 1, NEAR]):
                f, p = net.near[q, 0], net.near[q, 1]
                a = net.wide[f, 0]
                if p != (net.wide[f + 1, 0] - a - 1 if forward else 0) and living_tuples(net, s, f) > 0:
                    at = net.slot[a + p, 1] + x
                    put(s, at, value[at] - lent)
                    parts += 1
            put(s, 1 + oi + x, value[1 + oi + x] - parts * lent)
    return True
