"""Small files stay cheap: what they only count, promise, pack or link to costs nothing before it is refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import signal
import socket
import stat
import time
import tracemalloc
import zipfile
from contextlib import contextmanager

import h5py
import numpy as np
import pytest

import io_fixtures as G
import tightmap as tm
from tightmap import io as tio
from tightmap.io import source as limits

MIB = 1 << 20


@contextmanager
def at_most(mebibytes, seconds=30.0):
    """Peak of all allocations, NumPy's included; the time is generous, what is meant are minutes."""
    tracemalloc.start()
    begin = time.monotonic()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < mebibytes * MIB, f"{peak / MIB:.0f} MiB"
    assert time.monotonic() - begin < seconds


@contextmanager
def no_hang():
    """A test that waits for somebody else fails instead of blocking all others."""

    def stop(signum, frame):
        raise TimeoutError("still waiting after 20 s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def put(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path, match, **options):
    with pytest.raises(tm.ModelError, match=match) as caught:
        tm.read(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and message.count(str(path)) == 1 and "\n" not in message


COUNTS = {  # a hundred million variables, or labels, in a few bytes
    "m.qubo": "p qubo 0 100000000 1 0\n0 0 1\n",
    "m.mc": "100000000 1\n1 2 1\n",
    "m.bq": "100000000 1\n1 2 1\n",
    "m.qpbo": "100000000 1\n1 2 1\n",
    "spin.qpbo": "-100000000 1\n1 2 1\n",
    "m.coo": "# vartype=SPIN\n0 99999999 1\n",
    "m.dd": "p 100000000 1 1 0\na 0 0 0 1\n",
    "m.uai": "MARKOV 1 100000000 0",
    "m.wcsp": "w 1 100000000 0 9 100000000",
    "m.cfn": '{"problem": {"name": "x", "mustbe": "<9"}, "variables": {"a": 100000000}, "functions": {}}',
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_only_counted_is_refused_before_it_is_allocated(tmp_path, name):
    path = put(tmp_path / name, COUNTS[name])
    with at_most(1):
        refused(path, "100000000.* the limit for [0-9]+ bytes of content is 83")


@pytest.mark.parametrize("name", ["m.qubo", "m.mc", "m.bq", "m.qpbo", "m.coo"])
def test_a_million_isolated_variables_are_cheap(tmp_path, name):
    path = put(tmp_path / name, COUNTS[name].replace("100000000", "1000000").replace("99999999", "999999"))
    tm.Model([2]).graph()  # what is loaded on first use does not count
    with at_most(60):
        model = tm.read(path)
    with at_most(160):
        graph = model.graph()
    assert model.num_variables == graph.n == 1_000_000
    assert model.energy(np.zeros(1_000_000, dtype=np.int64)) in (0.0, 1.0)


def test_more_content_may_declare_more(tmp_path):
    lines = "".join(f"{i} {i + 1} 1\n" for i in range(1, 40000))
    model = tm.read(put(tmp_path / "m.mc", f"6000000 39999\n{lines}"))
    assert model.num_variables == 6_000_000


def test_a_model_that_cannot_be_afforded_is_refused(monkeypatch):
    from tightmap.runtime import memory

    model = tm.Model([2] * 1000)
    monkeypatch.setattr(memory, "SMALL", 0)  # so that small ones are looked at
    monkeypatch.setattr(memory, "available_bytes", lambda: 40_000)
    with pytest.raises(tm.ModelError, match="a model of 1000 variables and 2000 labels would need"):
        tm.Model([2] * 1000)
    with pytest.raises(tm.ModelError, match="the graph of 1000 variables and 2000 labels would need"):
        model.graph()


# ---------------------------------------------------------------------------------------------- compression

BOMBS = {
    "m.uai": b"0 ",
    "zero.uai": b"\0",
    "m.wcsp": b"x ",
    "m.cfn": b"[",
    "m.dd": b"c\n",
    "m.qubo": b"\n",
    "m.mc": b"#\n",
    "m.json": b"[",
    "m.h5": b"\0",
    "m.npz": b"\0",
    "m.evid": b"0 ",
    "m.MPE": b"MPE ",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(tmp_path, name, monkeypatch):
    monkeypatch.setattr(limits, "SMALL_CONTENT", MIB)  # so that small ones do
    head = b"\x89HDF\r\n\x1a\n" if name == "m.h5" else b""
    content = head + BOMBS[name] * (8 * MIB // len(BOMBS[name]))
    packed = {".gz": gzip.compress(content, 6)}
    if name == "zero.uai":
        packed |= {".bz2": bz2.compress(content), ".xz": lzma.compress(content, preset=0)}
    read = {"m.evid": tio.read_evidence, "m.MPE": tm.read_labels}.get(name, tm.read)
    for suffix, data in packed.items():
        path = put(tmp_path / (name + suffix), data)
        with at_most(10), pytest.raises(tm.ModelError, match=r"more than 500 times as many.*unpack the file first"):
            read(path)


def test_a_large_bomb(tmp_path):
    path = put(tmp_path / "m.uai.gz", gzip.compress(b"\0" * (100 * MIB), 6))
    with at_most(80):
        refused(path, "more than 500 times as many")


def test_content_is_limited_by_memory(tmp_path, monkeypatch):
    path = put(tmp_path / "m.uai.gz", gzip.compress(os.urandom(1 << 16).hex().encode()))
    monkeypatch.setattr(limits, "available_bytes", lambda: 1 << 18)
    refused(path, "expand to more than 65536, the limit on this machine")


def test_repetitive_content_is_no_bomb(tmp_path):
    """Tables of a few numbers, the most repetitive that real models are."""
    model = tm.Model([60] * 8)
    model.add_potts([[i, j] for i in range(8) for j in range(i)])
    for suffix in (".uai.gz", ".LG.xz", ".wcsp.bz2", ".cfn.gz"):
        tm.write(model, tmp_path / f"m{suffix}")
        assert tm.read(tmp_path / f"m{suffix}").energy([0] * 7 + [1]) == pytest.approx(7.0)


def test_zip_members(tmp_path):
    """An array is unpacked when its header is what is asked for, and only if it is stored or deflated."""
    path = tmp_path / "m.npz"
    np.savez_compressed(path, format=np.zeros(30 * MIB // 8), version=1)
    with at_most(2):
        refused(path, "'format': expected text with 0 axes")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as pack:
        pack.writestr("format.npy", b"\0" * MIB)
    refused(path, "stored or deflated")
    np.savez_compressed(path, format=np.array("no\nsense\u2028\ud800"), version=1)
    refused(path, "expected 'tightmap', got")


# ---------------------------------------------------------------------------------------------- what is no file


def test_what_is_not_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.uai")
    os.symlink("/dev/zero", tmp_path / "device.uai")
    os.symlink(tmp_path / "nowhere", tmp_path / "broken.uai")
    os.symlink(tmp_path / "loop.uai", tmp_path / "loop.uai")
    (tmp_path / "folder.uai").mkdir()
    with socket.socket(socket.AF_UNIX) as server, no_hang():
        server.bind(str(tmp_path / "socket.uai"))
        for name, match in {
            "pipe": "a pipe, expected a regular file",
            "device": "a device, expected a regular file",
            "socket": "a socket, expected a regular file",
            "folder": "a folder, expected a file",
            "broken": "no such file",
            "loop": r"cannot be read",
        }.items():
            refused(tmp_path / f"{name}.uai", match)
            for suffix in (".h5", ".npz", ".uai.gz", ".MPE", ".evid", ".npy"):
                other = tmp_path / f"{name}{suffix}"
                os.symlink(tmp_path / f"{name}.uai", other)
                read = {".MPE": tm.read_labels, ".npy": tm.read_labels, ".evid": tio.read_evidence}.get(suffix, tm.read)
                with pytest.raises(tm.ModelError, match=match):
                    read(other)
            good = put(tmp_path / "good.uai", G.UAI)
            with pytest.raises(tm.ModelError, match=match):
                tm.read(good, evidence=tmp_path / f"{name}.uai")


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable for root")
def test_no_permission(tmp_path):
    path = put(tmp_path / "m.uai", G.UAI)
    path.chmod(stat.S_IWUSR)
    refused(path, "cannot be read")


def test_h5_reads_no_other_file(tmp_path):
    secret = put(tmp_path / "secret", np.arange(3, dtype=np.uint64).tobytes())
    other, path = tmp_path / "other.h5", tmp_path / "m.h5"
    G.opengm(other, G.G_FUNCTIONS, G.CARDS, G.G_FACTORS)

    def attack(change, match):
        G.opengm(path, G.G_FUNCTIONS, G.CARDS, G.G_FACTORS)
        with h5py.File(path, "a") as file:
            change(file)
        refused(path, match)

    def external_data(file):
        del file["gm/numbers-of-states"]
        file["gm"].create_dataset("numbers-of-states", (3,), np.uint64, external=[(str(secret), 0, 24)])

    def virtual(file):
        del file["gm/numbers-of-states"]
        layout = h5py.VirtualLayout((3,), np.uint64)
        layout[:] = h5py.VirtualSource(str(other), "gm/numbers-of-states", (3,))
        file["gm"].create_virtual_dataset("numbers-of-states", layout)

    def replace(name, link):
        def change(file):
            del file[name]
            file[name] = link

        return change

    attack(external_data, "numbers-of-states: its data lies in another file")
    attack(virtual, "numbers-of-states: its data lies in another file")
    attack(replace("gm", h5py.ExternalLink(str(other), "/gm")), "'gm' is a link")
    attack(replace("gm/factors", h5py.ExternalLink(str(other), "/gm/factors")), "'factors' is a link")
    attack(replace("gm/function-id-16000", h5py.ExternalLink(str(other), "/gm/function-id-16000")), "is a link")
    attack(replace("gm/header", h5py.SoftLink("/elsewhere")), "'header' is a link")
    attack(replace("gm/function-id-16000/indices", h5py.SoftLink("/gm/factors")), "'indices' is a link")

    def elsewhere(file):  # another name for the group: none of the links is followed to find it
        file["a"] = h5py.ExternalLink(str(other), "/gm")
        file["b"] = h5py.ExternalLink(str(tmp_path / "nowhere.h5"), "/gm")
        file.move("gm", "model")

    G.opengm(path, G.G_FUNCTIONS, G.CARDS, G.G_FACTORS)
    with h5py.File(path, "a") as file:
        elsewhere(file)
    np.testing.assert_array_equal(G.energies(tm.read(path)), G.ENERGIES)
