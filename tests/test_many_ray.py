"""engine="ray": the same results on a cluster; our calls are tried on a stand-in, and on Ray where it is there."""

from __future__ import annotations

import sys
import types
from functools import partial
from importlib.util import find_spec

import pytest

import many_builders as builders
import tightmap as tm
from many_builders import grid

OPTIONS = {"method": "annealing", "cycles": 1, "sweeps": 2, "seed": 3}
MODELS = [partial(grid, size=12)(0), partial(grid, 1, size=12), builders.broken, "nowhere.uai", grid(4, size=12)]


def stand_in(cluster, first_dies=False):
    """The few calls of Ray that are used, carried out at once; the first task may lose its worker."""
    ray = types.ModuleType("ray")
    ray.calls, ray.results, ray.running = [], {}, cluster
    ray.exceptions = types.SimpleNamespace(RayError=type("RayError", (Exception,), {}))

    def init(address=None, **options):
        if address == "auto" and not cluster:
            raise ConnectionError("no cluster")
        ray.calls.append("found" if address == "auto" else "started")
        ray.running = True

    def remote(**options):
        def decorate(function):
            def submit(*arguments):
                name = object()
                ray.results[name] = partial(function, *arguments)
                return name

            return types.SimpleNamespace(remote=submit)

        ray.calls.append(options)
        return decorate

    def get(name):
        work = ray.results.pop(name)
        if first_dies and "died" not in ray.calls:
            ray.calls.append("died")
            raise ray.exceptions.RayError("the worker\ndied")
        ray.calls.append("got")
        return work()

    ray.init, ray.remote, ray.get = init, remote, get
    ray.is_initialized = lambda: False
    ray.cluster_resources = lambda: {"CPU": 6.0}
    ray.wait = lambda names, num_returns, timeout: (names[-1:], names[:-1])  # not in order
    ray.cancel = lambda name, force: ray.calls.append("cancelled")
    ray.shutdown = lambda: ray.calls.append("ended")
    return ray


def expected():
    return [tm.solve(grid(k, size=12), **(OPTIONS | {"seed": 3 + i})) for i, k in ((0, 0), (1, 1), (4, 4))]


@pytest.mark.parametrize("cluster", [False, True])
def test_the_calls_to_ray(monkeypatch, cluster):
    ray = stand_in(cluster)
    monkeypatch.setitem(sys.modules, "ray", ray)
    found = {o.index: o for o in tm.solve_many(MODELS, engine="ray", threads=2, **OPTIONS)}
    assert [found[i].get() for i in (0, 1, 4)] == expected()
    assert "this and that" in str(found[2].error) and "no such file" in str(found[3].error)
    assert ray.calls == ["found" if cluster else "started", {"num_cpus": 2, "max_retries": 1}, *["got"] * 5, "ended"]


def test_lost_workers_and_an_early_end(monkeypatch, tmp_path):
    ray = stand_in(True, first_dies=True)
    monkeypatch.setitem(sys.modules, "ray", ray)
    outcomes = tm.solve_many([grid(0)] * 4, engine="ray", workers=1, checkpoint=tmp_path, method="bcd")
    first, second = next(outcomes), next(outcomes)
    assert isinstance(first.error, tm.WorkerError) and "the worker died" in str(first.error)
    assert second.result is not None
    outcomes.close()
    assert ray.calls[-2:] == ["cancelled", "ended"]
    assert (tmp_path / "journal").read_bytes().count(b"\n") == 2  # the head and one result


def test_without_ray_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(tm.OptionError, match=r"pip install 'tightmap\[ray\]'"):
        tm.solve_many([grid(0)], engine="ray")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.filterwarnings("default")  # what Ray warns of is its own affair
def test_on_ray_itself(tmp_path):
    found = {o.index: o for o in tm.solve_many(MODELS, engine="ray", workers=2, checkpoint=tmp_path, **OPTIONS)}
    assert [found[i].get() for i in (0, 1, 4)] == expected()
    assert "this and that" in str(found[2].error) and "no such file" in str(found[3].error)
    again = {o.index: o for o in tm.solve_many(MODELS, engine="serial", checkpoint=tmp_path, **OPTIONS)}
    assert [again[i].get() for i in (0, 1, 4)] == expected()
