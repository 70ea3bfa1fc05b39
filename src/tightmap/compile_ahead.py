"""Compile the kernels of all methods ahead of time, in several processes.

Numba compiles a kernel when it is first called and keeps it on disk.  Solving small models of every shape with every
method fills that cache at a moment of the user's choice: after an installation, or while an image is built.  Or at the
same time, by helpers on cores that have nothing to do (runtime/background.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any

import numpy as np

from tightmap.errors import ModelError
from tightmap.graph.graph import PairArrays
from tightmap.model.model import Model
from tightmap.runtime import clock
from tightmap.runtime.background import Helper, Job, add
from tightmap.runtime.lifeline import die_with_parent
from tightmap.runtime.parallel import available

ITERATIONS = 60  # enough for every part of a method to be called at least once
SECONDS = 0.5  # of one run, compilation not counted
VARIANTS: dict[str, list[dict[str, Any]]] = {  # what large models, and those of many factors, get by default
    "trws": [{"precision": "single"}],
    "bcd": [{"incremental": True}],
}
PLANNED = ("auto", "trws", "expansion")  # methods that keep more than labels from run to run of a plan
ONE_CUT = ("auto", "qpbo", "expansion")  # methods that solve models of two labels by one cut
SHORT = ("auto", "expansion")  # methods that keep duals in few bits
BOOT = (  # a process that does one of the functions below, and does not import the caller's main module
    "import json, sys\n"
    "path, work, arguments = json.loads(sys.argv.pop())\n"
    "sys.path[:] = path\n"
    "from tightmap import compile_ahead\n"
    "getattr(compile_ahead, work)(*arguments)\n"
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
NICE = 10  # a helper makes way for what somebody waits for


def small_models(pairs: bool | None = None) -> Iterator[Model]:
    """Grids of the usual tables, pairs on a graph, and factors of every kind of higher order.

    pairs : only models of plain pairs, whose kernels are others, or only other models.
    """
    for model in _small_models():
        if pairs is None or isinstance(model.graph().arrays, PairArrays) == pairs:
            yield model


def _small_models() -> Iterator[Model]:
    rng = np.random.default_rng(0)
    # as large as the grid engine of TRW-S needs them; costs that are whole numbers are kept as such
    for whole in (False, True):
        model = Model.grid(16, 24, 3)
        costs = rng.random((384, 3))
        model.add_unaries(np.round(20.0 * costs) if whole else costs)
        model.add_potts(model.edges(), 8.0 if whole else 0.5)
        yield model
    model = Model.grid(14, 16, 6)
    model.add_unaries(rng.random((224, 6)))
    model.add_potts(model.edges(8), 0.5)
    yield model
    model = Model.grid(9, 10, 6)
    model.add_unaries(rng.random((90, 6)))
    model.add_truncated_linear(model.edges(), np.full(len(model.edges()), 0.3), 2.5)
    yield model
    for labels in (2, 4):
        pairs = [[i, j] for i in range(12) for j in range(i + 1, min(12, i + 4))]
        model = Model([labels] * 12)
        model.add_unaries(rng.random((12, labels)))
        model.add_factors(pairs, rng.random((len(pairs), labels, labels)))
        yield model
    # no costs of their own: cuts have nothing to push and ask for a proof, on grids and on other graphs
    model = Model.grid(4, 5, 3)
    model.add_potts(model.edges(), 1.0)
    yield model
    model = Model([2, 3, 4] * 4)
    model.add_potts(pairs, 1.0)
    yield model
    # frustrated: clusters of three variables raise the bound, and so do triangles of signs; a search has to branch
    for n, labels in ((12, 2), (6, 3), (9, 9)):
        pairs = [[i, j] for i in range(n) for j in range(i)]
        model = Model([labels] * n)
        model.add_unaries(rng.random((n, labels)))
        equal = np.inf if labels == 3 else 3.0 * rng.random((len(pairs), 1, 1))
        model.add_factors(pairs, np.where(np.eye(labels) > 0, equal, rng.random((len(pairs), labels, labels))))
        yield model
    for weights in (rng.integers(1, 5, 22), rng.normal(size=22)):
        model = Model.grid(3, 5, 2)
        model.add_unaries(
            np.round(10.0 * rng.random((15, 2))) if weights.dtype.kind == "i" else rng.normal(size=(15, 2))
        )
        model.add_truncated_linear(model.edges(), weights, 2.0)
        yield model
    model = Model([3] * 12)
    model.add_unaries(rng.random((12, 3)))
    model.add_factors([[i, i + 1, i + 2] for i in range(10)], rng.random((10, 3, 3, 3)))
    model.add_pn_potts([[0, 1, 2, 3], [4, 5, 6, 7]], [0.5, 0.5])
    yield model
    model = Model([9] * 9)  # labels that are only names
    pairs = [[i, j] for i in range(9) for j in range(i)]
    model.add_potts(pairs, rng.normal(size=len(pairs)))
    yield model
    rng = np.random.default_rng(1)  # of three that were tried, one whose clusters take the place of messages
    model = Model([3] * 6)
    model.add_unaries(rng.normal(size=(6, 3)))
    model.add_factors([[0, 1, 2, 3], [2, 3, 4, 5], [0, 2, 4, 5]], 3.0 * rng.normal(size=(3, 3, 3, 3, 3)))
    model.add_factors([[0, 1, 2], [1, 3, 5], [0, 4, 5]], 3.0 * rng.normal(size=(3, 3, 3, 3)))
    model.add_factors([[0, 5], [1, 4], [2, 5]], 3.0 * rng.normal(size=(3, 3, 3)))
    yield model
    for labels in (2, 12):  # a frustrated ring, a longer cycle than any triplet; with as many labels, a partition of it
        model = Model([labels] * 12)
        model.add_potts([[i, (i + 1) % 12] for i in range(12)], [-0.6] + 11 * [0.5])
        model.add_unaries(0.01 * rng.random((12, 2)) if labels == 2 else np.zeros((12, 12)))
        yield model


def compile_method(method: str, options: Mapping[str, Any] | None = None, pairs: bool | None = None) -> float:
    """Seconds that went into compiling what ``method`` needs for small models of every shape."""
    before = clock.compiling_seconds()
    given = dict(options or {})
    for more in ({}, *VARIANTS.get(method, [])):
        for model in small_models(pairs):
            _solve(model, method, given | more)
    if pairs is not False:
        _without_edges(method, given)
    if pairs is None:  # else for one model, by a helper that somebody waits for
        _now_and_then()
    if method in NOW_AND_THEN:
        NOW_AND_THEN[method](pairs)
    if pairs is None and method in PLANNED:
        _frames(method)
    if method in ONE_CUT:
        _one_cut()
    if method in SHORT and pairs is not False:
        _short_duals()
    return clock.compiling_seconds() - before


def _solve(
    model: Model, method: str, options: Mapping[str, Any], limit: float | None = SECONDS, most: int = ITERATIONS
) -> Any:
    from tightmap.driver import solve

    with suppress(ModelError):  # not for this method
        return solve(model, method, max_iterations=most, time_limit=limit, **options)


def _without_edges(method: str, options: Mapping[str, Any]) -> None:
    """What runs on images too large for a list of their edges, on a small one."""
    from tightmap.canonical.build import lattice_graph

    for limit in (None, SECONDS):  # with a time limit a large model has a plan of its own
        model = next(small_models())
        model._graph = lattice_graph(model, least=0)
        assert model._graph is not None
        _solve(model, method, options, limit)


def _now_and_then() -> None:
    """What few runs need: sizes of costs where a proof hangs on rounding, patterns of labels, hard constraints."""
    from tightmap.energy.energies import minima_size
    from tightmap.factors.pattern_ranks import pattern_ranks
    from tightmap.moves.feasibility.engine import Feasibility

    for kind in (True, False):
        minima_size(next(small_models(kind)).graph())
    pattern_ranks(np.zeros((1, 2), dtype=np.int64))
    model = Model([3, 3])
    model.add_factors([[0, 1]], np.where(np.eye(3) > 0, np.inf, 0.0))
    Feasibility(model.graph()).propagate()


def _streams(pairs: bool | None) -> None:
    """Messages on graphs that are no grids, of so many edges that their tables are laid out for it."""
    if pairs is False:
        return
    rng = np.random.default_rng(0)
    for labels in (2, 9):
        edges = [[i, j] for i in range(24) for j in range(i)]
        model = Model([labels] * 24)
        model.add_factors(edges, rng.random((len(edges), labels, labels)))
        for threads in (1, 2):
            _solve(model, "trws", {"threads": threads}, None, 2)


def _strips(pairs: bool | None) -> None:
    """Messages of the grid engine in single precision, handed on to another method."""
    _streams(pairs)
    if pairs is not False:
        found = _solve(next(small_models(True)), "trws", {"precision": "single"}, None, 2)
        _solve(next(small_models(True)), "trws", {"init": found}, None, 2)


def _rings(pairs: bool | None) -> None:
    """What a core of ``combilp`` takes over from the variables around it."""
    from tightmap.energy.energies import message_offsets
    from tightmap.solvers.combilp.blocks import Blocks
    from tightmap.solvers.combilp.core import Neighbours, press

    _strips(pairs)
    graph = next(small_models(True)).graph()
    blocks = Blocks(graph, np.zeros(int(message_offsets(graph)[-1])))
    press(blocks, Neighbours(graph), {0}, 1, set())


def _interrupted_search(_: bool | None) -> None:
    """Cores of costs, for which clauses are added and forgotten, and a search that is interrupted."""
    from tightmap.solvers.exact.component import Component
    from tightmap.solvers.exact.cores import Cores
    from tightmap.solvers.exact.network import build_network
    from tightmap.solvers.exact.search import close_burst

    model = Model([2] * 8)
    pairs = [[i, j] for i in range(8) for j in range(i)]
    model.add_potts(pairs, np.random.default_rng(4).integers(-3, 4, len(pairs)))
    network = build_network(model.graph(), 100.0)
    cores = Cores(network)
    while not cores.closed:
        cores.step(np.inf, 10_000)
    cores.engine._forget()
    component = Component(network, list(range(8)), network.upper - network.constant, network.grain, False, None)
    close_burst(component.state, component.tree, False)


def _fused(pairs: bool | None) -> None:
    """Two labellings that ``admm`` makes one of."""
    from tightmap.moves.context import Context
    from tightmap.solvers.admm.fused_labelling import FusedLabelling

    for kind in (True, False) if pairs is None else (pairs,):
        graph = next(small_models(kind)).graph()
        fused = FusedLabelling(graph, Context(), False)
        for seed in range(4):
            fused.offer(np.random.default_rng(seed).integers(0, graph.arrays.cards))


def _presolved(pairs: bool | None) -> None:
    """Labels that others can stand for, and constraints that are propagated, before any method begins."""
    from tightmap.moves.context import Context
    from tightmap.solvers.auto.presolve import presolve

    rng = np.random.default_rng(0)
    order = 3 if pairs is False else 2
    model = Model([3] * 12)
    model.add_unaries(rng.random((12, 3)))
    model.add_factors([range(i, i + order) for i in range(10)], rng.random((10, *order * [3])))
    model.add_factors([[1, 5]], np.where(np.eye(3) > 0, np.inf, 0.0))
    graph, context = model.graph(), Context()
    presolve(graph, context.incumbent_of(graph), context)


# kernels that runs on the models above reach by chance, or not at all
NOW_AND_THEN: dict[str, Callable[[bool | None], None]] = {
    "trws": _strips,
    "combilp": _rings,
    "exact": _interrupted_search,
    "admm": _fused,
    "auto": _presolved,
}


def _frames(method: str) -> None:
    """Runs of a plan, which go on from those before."""
    from tightmap.plans import prepare

    for model in list(small_models(True))[:4]:
        plan = prepare(model, method, max_iterations=2)
        for _ in range(2):
            plan.solve(unaries=model.unaries.reshape(model.num_variables, -1))


def _one_cut() -> None:
    """Two labels: images with and without a list of edges, and other graphs."""
    from tightmap.canonical.build import lattice_graph
    from tightmap.graphcut.binary_cut import minimum_by_one_cut

    model = Model.grid(4, 4, 2)
    model.add_unaries(np.random.default_rng(0).random((16, 2)))
    model.add_potts(model.edges(), 0.5)
    lattice = lattice_graph(model, least=0)
    assert lattice is not None
    star = Model([2] * 16)
    star.add_potts([[0, i] for i in range(1, 16)])
    for graph in (lattice, model.graph(), star.graph()):
        minimum_by_one_cut(graph)


def _short_duals() -> None:
    """What expansion keeps in 16 bits on large images of whole costs."""
    from tightmap.graphcut.expansion import Expansion
    from tightmap.graphcut.pairwise import pair_model

    _, model = islice(small_models(), 2)
    moves = Expansion(pair_model(model.graph()), True, compact=True)
    moves.begin(np.zeros(model.num_variables, np.int64))
    assert moves.compact


def _command(work: str, arguments: Sequence[Any] = ()) -> list[str]:
    return [sys.executable, "-c", BOOT, json.dumps([sys.path, work, arguments])]


def compile_kernels(
    methods: Sequence[str], processes: int | None = None, started: list[subprocess.Popen[str]] | None = None
) -> Iterator[tuple[str, float]]:
    """Compile for the methods; yields each with its seconds of compilation as soon as it is ready.

    The processes, which ``started`` gets to know, do not import the caller's main module, as those of multiprocessing
    do: a script that calls this need not be written for that, and there may be none that can be imported.
    """
    count = min(processes or available(), max(1, len(methods)))
    if count == 1:
        yield from ((method, compile_method(method)) for method in methods)
        return
    waiting, ready = deque(methods), SimpleQueue[tuple[str, float] | ModelError]()
    hands = [] if started is None else started

    def ask() -> None:
        """Have a process of its own compile for one method after the other."""
        command, pipe = _command(compile_asked.__name__), subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        except (OSError, ValueError) as error:  # no interpreter, or no process more
            ready.put(ModelError(f"no process to compile in could be started: {error}"))
            return
        with process:
            hands.append(process)
            assert process.stdin is not None and process.stdout is not None
            while waiting:
                with suppress(IndexError):  # another one may have taken the last
                    method = waiting.popleft()
                    with suppress(BrokenPipeError):
                        process.stdin.write(f"{method}\n")
                        process.stdin.flush()
                    answer = process.stdout.readline()
                    if not answer:
                        ready.put(ModelError(f"the process that compiled the kernels of {method} ended before it had"))
                        return
                    ready.put((method, float(answer)))
            with suppress(BrokenPipeError):
                process.stdin.close()

    for _ in range(count):
        threading.Thread(target=ask, daemon=True).start()
    try:
        for _ in methods:
            item = ready.get()
            if isinstance(item, ModelError):
                raise item
            yield item
    finally:
        waiting.clear()
        for process in hands:
            process.kill()


def compile_asked() -> None:
    """What such a process does: it reads names of methods and answers with the seconds that compiling took."""
    from tightmap.registry import METHODS

    die_with_parent()
    clock.announce_never()
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        method = line.strip()  # one that was registered by the caller's program is not known here
        answers.write(f"{compile_method(method) if method in METHODS else 0.0}\n")
        answers.flush()


# ------------------------------------------------------------------------------------------------- helpers


def warm_up(methods: str | Sequence[str] | None = None, *, background: bool = False) -> None:
    """Get the kernels of methods onto disk, of all of them by default, in as many processes as there are cores.

    background : return at once and let processes on the other cores do it, none where there is only one core; ``auto``
        gives its turns meanwhile, where time is limited, to methods that are ready.
    """
    from tightmap.registry import METHODS, make_solver

    chosen = list(METHODS) if methods is None else [methods] if isinstance(methods, str) else list(methods)
    for name in chosen:
        make_solver(name, {})  # an unknown name is an error before anything is compiled
    if background:
        start_helpers([(name, {}) for name in chosen])
        return
    for _ in compile_kernels(chosen):
        pass


def start_helpers(jobs: Sequence[Job], pairs: bool | None = None) -> None:
    """Start processes that compile these, one method after the other, on all cores but one."""
    count = min(available() - 1, len(jobs))
    for k in range(count):
        own = jobs[k::count]
        work = [[[method, dict(options)] for method, options in own], pairs]
        try:
            process = subprocess.Popen(
                _command(help_out.__name__, work),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | dict.fromkeys(THREADS, "1"),
                start_new_session=True,  # Ctrl-C is for whoever waits for an answer
            )
        except (OSError, ValueError):  # no interpreter, or no process more: kernels are compiled when they are used
            return
        add(Helper(process, [method for method, _ in own]))


def help_out(jobs: Sequence[tuple[str, dict[str, Any]]], pairs: bool | None) -> None:
    """What a helper does: it ends when nobody holds the other end of its standard input any more."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clock.announce_never()
    if hasattr(os, "nice"):
        os.nice(NICE)

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever others print
    for method, options in jobs:
        compile_method(method, options, pairs)
        os.write(answers, f"{method}\n".encode())
