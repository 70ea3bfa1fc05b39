"""Slow, plain NumPy versions of the methods, for reading and as oracles of the tests.

Every file is one method on dense tables, in the order and with the equation numbers of the paper (D. K. Lê-Huu and
N. Paragios, "Continuous Relaxation of MAP Inference: A Nonconvex Perspective", CVPR 2018; numbers above 42 are in its
supplement).  Nothing here is compiled, cached or threaded, and nothing is shared with the fast methods of ``solvers``:
the two only have to agree.

    file            function        paper                         models         proves a bound
    brute_force.py  brute_force     (4): all labellings           a million      the optimum
    bcd.py          bcd             Algorithm 1, (11)-(14)        any order      no
    pgd.py          pgd             Algorithm 2, (16)-(17)        any order      no
    frank_wolfe.py  frank_wolfe     Algorithm 3, (17), (85)       any order      no
    admm.py         admm            Algorithm 4, (20)-(38)        any order      no
    cqp.py          cqp             (96)-(102)                    pairwise       weak
    trws.py         trws            Kolmogorov 2006               pairwise       yes
    ad3.py          ad3             Martins et al. 2015           any order      yes

    model.py        what they work on: unaries, dense tables, the multilinear energy (10) and its gradient
    dense.py        from a Model to that
    tensor.py       the product of a tensor and vectors, (6)-(8)
    simplex.py      projection on the simplices
    line_search.py  the best step along a segment, (17) and (87)-(95)

Every function takes a Model (or Tables) and returns labels, their energy and a trace with one dictionary an iteration:

    from tightmap.reference.admm import admm
    labels, energy, trace = admm(model, decomposition="star", symmetrize=True)
"""
