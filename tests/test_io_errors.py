"""Bad files: one ModelError that names the file, whatever the bytes are; nothing unpickled, nothing over-allocated."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import warnings
import zipfile

import h5py
import numpy as np
import pytest

import io_fixtures as G
import tightmap as tm
from conftest import data_file
from problems import random_model
from tightmap import io as tio

TEXTS = {
    "g.uai": G.UAI,
    "g.LG": G.LG,
    "g.wcsp": G.WCSP,
    "g.cfn": G.CFN,
    "t.cfn": G.TERSE_CFN,
    "g.dd": G.DD,
    "g.qpbo": "2 3\n1 1 1\n2 2 -2\n1 2 3\n",
    "g.bq": "2 3\n1 1 1\n2 2 -2\n1 2 3\n",
    "g.qubo": "c offset 1.5\np qubo 0 2 2 1\n0 0 1\n1 1 -2\n0 1 3\n",
    "g.coo": "# vartype=BINARY\n0 0 1\n1 1 -2\n0 1 3\n",
    "g.mc": "3 2\n1 2 5\n2 3 -1\n",
}


def fails(path, text, match, **options):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(tm.ModelError, match=match) as caught:
        tm.read(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and message.count(str(path)) == 1 and "\n" not in message
    assert caught.value.__cause__ is None and len(message) < 600


UAI_ERRORS = {
    "": "token 1 .*MARKOV or BAYES, got the end",
    "CREDAL 1 2 0": r"token 1 \(line 1, byte 0\).*MARKOV or BAYES.*'CREDAL'",
    "MARKOV 1000000000000 2": r"token 2 .*number of variables.*1000000000000",
    "MARKOV -1": r"token 2 .*'-1'",
    "MARKOV 1.5 2 0": r"token 2 .*integer.*'1\.5'",
    "MARKOV 2 2 0 0": r"token 4 .*labels.*'0'",
    "MARKOV 3 2000000000 2000000000 2000000000 0": "3 variables with 6000000000 labels in all",
    "MARKOV 2\n2 2\n1\n2 0 2\n4 1 1 1 1": r"token 8 \(line 4, byte 19\).*variable.*0\.\.1.*'2'",
    "MARKOV 2 2 2 1 2 0 0 4 1 1 1 1": "distinct variables.*twice",
    "MARKOV 2 2 2 1 2 0 1 3 1 1 1": "token 9 .*4 entries for the table of function 0, got 3",
    "MARKOV 2 2 2 1 2 0 1 4 1 1 1": "token 9 .*table of function 0: 4 items to follow, got only 3 tokens",
    "MARKOV 2 2 2 1 2 0 1 4 1 1 nan 1": "token 12 .*number, got 'nan'",
    "MARKOV 2 2 2 1 2 0 1 4 1 1 x 1": "token 12 .*number, got 'x'",
    "MARKOV 2 2 2 1 2 0 1 4 1 1 -1 1": "token 12 .*potential.*values=\"cost\".*'-1'",
    "MARKOV 2 2 2 1 2 0 1 4 1 1 inf 1": "token 12 .*potential",
    "MARKOV 2 2 2 1 2 0 1 4 1 1 1 1 7": "token 14 .*end of the file, got '7'",
    "MARKOV 1 2 1 0 0": "1 entries for the table of function 0, got 0",
    "MARKOV 2 2 2 99999999 0": "number of functions",
    "MARKOV 2 2 2 1 1e300 0": "scope of function 0",
}


@pytest.mark.parametrize("text", UAI_ERRORS)
def test_uai_errors(tmp_path, text):
    fails(tmp_path / "m.uai", text, UAI_ERRORS[text])


def test_other_text_errors(tmp_path):
    fails(tmp_path / "m.uai", "MARKOV 1 2 1 1 0 2 1 -inf", "cost", values="cost")
    fails(tmp_path / "m.LG", "MARKOV 1 2 1 1 0 2 1 inf", "logarithm")
    fails(tmp_path / "m.wcsp", "w 2 2 1 9 2 2 2 0 1 0 1 0 2 5", "token 14 .*label in 0..1.*'2'")
    fails(tmp_path / "m.wcsp", "w 2 2 1 9 2 2 2 0 1 0 1 0 1 -5", "cost of at least 0")
    fails(tmp_path / "m.wcsp", "w 2 2 1 9 2 -2 2 0 1 0 0", "intervals")
    fails(tmp_path / "m.wcsp", "w 2 2 1 9 2 2 2 0 1 0 -1", "shared tables")
    fails(tmp_path / "m.cfn", G.CFN.replace("[1, 4]", "[1, 4, 5]"), r"line 4.*2 costs, got 3")
    fails(tmp_path / "m.cfn", G.CFN.replace("x1", "x0", 1), "is taken")
    fails(tmp_path / "m.cfn", G.CFN.replace("[1, 4]", "[1, -inf]"), "-inf")
    fails(tmp_path / "m.dd", "a 0 0 0 1", "line 1")
    fails(tmp_path / "m.dd", G.DD.replace("a 2 1 1 -3", "a 2 1 9 -3"), "right point in 0..1, got 9")
    fails(tmp_path / "m.dd", G.DD.replace("e 0 2", "e 0 7"), "edge 0")
    fails(tmp_path / "m.dd", "p 1000000000 1 0 0", "1000000000 variables")
    fails(tmp_path / "m.mc", "2 1\n1 1 5", "to itself")
    fails(tmp_path / "m.mc", "2 1\n1 3 5", "index in 1..2")
    fails(tmp_path / "m.coo", "0 1 2", "vartype")
    fails(tmp_path / "m.coo", "# vartype=SPIN\n0 999999999 2", "1000000000 variables.*the limit for 28 bytes")
    fails(tmp_path / "m.qubo", "p qubo 0 2 1 1\n0 5 1", "line 2")
    fails(tmp_path / "m.json", "{", "JSON")
    fails(tmp_path / "m.json", "[" * 100000, "JSON")
    fails(tmp_path / "m.json", '{"type": "BinaryQuadraticModel", "variable_type": "SPIN"}', "linear_biases")
    fails(tmp_path / "m.uai", b"\xff\x00\x00MARKOV", "MARKOV")


def test_files_and_options(tmp_path):
    for path, match in ((tmp_path / "no.uai", "no such file"), (tmp_path / "no.h5", "no such file")):
        with pytest.raises(tm.ModelError, match=match):
            tm.read(path)
    (tmp_path / "folder.uai").mkdir()
    with pytest.raises(tm.ModelError, match="folder"):
        tm.read(tmp_path / "folder.uai")
    with pytest.raises(tm.ModelError, match=r"m\.xyz: no such file"):
        tm.read(tmp_path / "m.xyz")
    (tmp_path / "m.xyz").write_text("MARKOV")
    with pytest.raises(tm.ModelError, match=r"unknown suffix \.xyz; formats: \.npz"):
        tm.read(tmp_path / "m.xyz")
    with pytest.raises(tm.ModelError, match="unknown suffix"):
        tm.write(G.model(), tmp_path / "m")
    with pytest.raises(tm.ModelError, match="not written"):
        tm.write(G.model(), tmp_path / "m.dd")
    with pytest.raises(tm.ModelError, match="does not exist"):
        tm.write(G.model(), tmp_path / "none" / "m.uai")
    with pytest.raises(tm.ModelError, match="folder"):
        tm.write(G.model(), tmp_path / "folder.uai")
    with pytest.raises(tm.OptionError, match=r"unknown option 'valeus'.*values"):
        tm.read(tmp_path / "m.uai", valeus="cost")
    (tmp_path / "m.uai").write_text(G.UAI)
    with pytest.raises(tm.OptionError, match="potential, log, cost"):
        tm.read(tmp_path / "m.uai", values="prices")
    with pytest.raises(tm.OptionError, match="digits"):
        tm.write(G.model(), tmp_path / "m.wcsp", digits=99)


def test_compressed_damage(tmp_path):
    packed = gzip.compress(G.UAI.encode())
    fails(tmp_path / "m.uai.gz", packed[:-12], "damaged or cut short")
    fails(tmp_path / "m.uai.gz", G.UAI, "cannot be read|damaged")
    fails(tmp_path / "m.uai.xz", lzma.compress(G.UAI.encode())[:-20], "damaged or cut short")
    fails(tmp_path / "m.uai.bz2", b"BZh9" + b"x" * 40, "cannot be read|damaged")


def test_content_that_the_name_does_not_tell(tmp_path):
    content = G.UAI.encode()
    for name in ("m.uai", "m.uai.bz2"):
        packed = gzip.compress(content)
        fails(tmp_path / name, bz2.compress(packed) if name.endswith(".bz2") else packed, r"must end in \.gz")
    fails(tmp_path / "m.uai", bz2.compress(content), r"must end in \.bz2")
    fails(tmp_path / "m.uai", lzma.compress(content), r"must end in \.xz")
    fails(tmp_path / "m.uai", G.UAI.encode("utf-16"), "UTF-16")
    (tmp_path / "m.uai").write_bytes(b"\xef\xbb\xbf" + content)  # as some editors begin a file
    (tmp_path / "plain.uai").write_bytes(content)
    marked, plain = tm.read(tmp_path / "m.uai"), tm.read(tmp_path / "plain.uai")
    for labels in np.indices(plain.cardinalities).reshape(plain.num_variables, -1).T:
        assert marked.energy(labels) == plain.energy(labels)


def npz(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        for name, data in members.items():
            z.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def npy(array):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array))
    return buffer.getvalue()


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_npz_errors(tmp_path):
    path = tmp_path / "m.npz"
    tm.write(G.model(), path)
    good = path.read_bytes()
    fails(path, b"PK", "not an .npz archive")
    fails(path, good[: len(good) // 2], "not an .npz archive")
    fails(path, npz(x=npy([1, 2])), "D, hw, vw and V")
    fails(path, npz(format=npy("tightmap"), version=npy(7)), "version 7")
    fails(path, npz(format=npy("tightmap"), version=npy(1)), "'cardinalities': expected in the archive")
    bomb = io.BytesIO()
    np.lib.format.write_array(bomb, np.array([Bomb()], dtype=object), allow_pickle=True)
    fails(path, npz(format=bomb.getvalue()), "nothing is unpickled")
    huge = npy(np.zeros(3)).replace(b"(3,)", b"(3333333333333,)")[:128]
    fails(path, npz(format=npy("tightmap"), version=npy(1), cardinalities=huge), "cardinalities")
    head = {"format": npy("tightmap"), "version": npy(1), "cardinalities": npy([2, 2]), "constant": npy(0.0)}
    head |= {"unaries": npy(np.zeros(4)), "clamped": npy([-1, -1])}
    fails(path, npz(**head, kinds=npy(["NOSUCH"]), **{"b0.scopes": npy([[0, 1]]), "b0.weights": npy([1.0])}), "NOSUCH")
    fails(path, npz(**head, kinds=npy(["POTTS"]), **{"b0.scopes": npy([[0, 9]]), "b0.weights": npy([1.0])}), "0..1")
    fails(path, npz(**(head | {"unaries": npy([np.nan] * 4)}), kinds=npy(np.zeros(0, "U1"))), "nan")
    fails(
        path,
        npz(D=npy(np.zeros((2, 2, 3))), hw=npy(np.zeros((2, 2))), vw=npy(np.zeros((1, 2))), V=npy(np.eye(3))),
        "hw",
    )


def test_h5_errors(tmp_path):
    path = tmp_path / "m.h5"

    def bad(match, groups=G.G_FUNCTIONS, cards=G.CARDS, factors=G.G_FACTORS, **more):
        G.opengm(path, groups, cards, factors, **more)
        fails(path, path.read_bytes(), match)

    fails(path, "not hdf5 at all", "signature")
    bad("version", header=[3, 0, 3, 3, 2, 16000, 2, 16006, 1, 1])
    bad("header: expected", header=[2, 0, 3, 3, 9, 16000, 2, 16006, 1, 1])
    bad("expected 1000000000000 entries", header=[2, 0, 10**12, 3, 2, 16000, 2, 16006, 1, 1])
    bad("1000000000000 factors", header=[2, 0, 3, 10**12, 2, 16000, 2, 16006, 1, 1])
    bad("promises 1000000000000 functions", header=[2, 0, 3, 3, 2, 16000, 10**12, 16006, 1, 1])
    bad("variable in 0..2, got 3", factors=[0, 0, 1, 3])
    bad("function in 0..1 of type 16000, got 2", factors=[2, 0, 1, 0])
    bad("type in 0..1, got 2", factors=[0, 2, 1, 0])
    bad("has the shape", factors=[1, 0, 2, 0, 1])
    bad("has 1 variables, a factor uses it on 2", factors=[0, 0, 2, 0, 1])
    bad("type 16165 are not supported", {16165: (1, [2], [1.0])}, factors=[0, 0, 1, 0])
    bad("entry 1.*nan", {16000: (1, [1, 2], [0, np.nan])}, factors=[0, 0, 1, 0])
    bad("expected 2 values", {16000: (1, [1, 2], [0, 1, 2])}, factors=[0, 0, 1, 0])
    bad("labels in all", cards=(2**40, 2, 3))
    bad("integer in 0", cards=(2**64 - 1, 2, 3))
    bad("keys in 0", {16001: (1, [2, 2, 2, 1, 4], [0.0, 1.0])}, factors=[0, 0, 2, 0, 1])
    G.opengm(path, G.G_FUNCTIONS, G.CARDS, G.G_FACTORS)
    with h5py.File(path, "a") as f:
        del f["gm/numbers-of-states"]
        f["gm"].create_dataset("numbers-of-states", shape=(3 * 10**12,), dtype=np.uint64, chunks=(1024,))
    fails(path, path.read_bytes(), "promises 3000000000000 entries")
    with h5py.File(path, "w") as f:
        f.create_group("a")["header"] = [1]
        f.create_group("b")["header"] = [1]
    fails(path, path.read_bytes(), "2 such groups")


# ---------------------------------------------------------------------------------------------- fuzzing


def survives(path, data):
    """Reading gives a Model or one ModelError that names the file."""
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tio.FormatWarning)
        try:
            model = tm.read(path)
        except tm.ModelError as error:
            assert str(error).startswith(f"{path}: "), error
            return
    assert isinstance(model, tm.Model)


def mutants(data, rng, number):
    """Cut, flipped, deleted, doubled and replaced bytes."""
    tokens = [b"-1", b"0", b"1e999", b"nan", b"99999999999999999999", b"1000000000000", b"[", b"}", b"", b"\x00", b"x"]
    for _ in range(number):
        kind = rng.integers(5)
        new = bytearray(data)
        at = int(rng.integers(len(data)))
        if kind == 0:
            new = new[:at]
        elif kind == 1:
            for at in rng.integers(0, len(data), size=int(rng.integers(1, 6))):
                new[at] = int(rng.integers(256))
        elif kind == 2:
            del new[at : at + int(rng.integers(1, 20))]
        elif kind == 3:
            new[at:at] = data[at : at + int(rng.integers(1, 20))]
        else:
            parts = data.split(b" ")
            parts[int(rng.integers(len(parts)))] = tokens[int(rng.integers(len(tokens)))]
            new = bytearray(b" ".join(parts))
        yield bytes(new)


@pytest.mark.parametrize("name", TEXTS)
def test_fuzz_text(tmp_path, name):
    rng = np.random.default_rng(0)
    data = TEXTS[name].encode()
    for cut in range(0, len(data), 3):
        survives(tmp_path / name, data[:cut])
    for mutant in mutants(data, rng, 250):
        survives(tmp_path / name, mutant)


@pytest.mark.parametrize("suffix", [".h5", ".npz", ".json", ".uai.gz"])
def test_fuzz_binary(tmp_path, suffix):
    rng = np.random.default_rng(1)
    kinds = ("dense",) if suffix in (".json", ".uai.gz") else None
    model = tm.Model([2, 2, 2])
    model.add_factors([[0, 1], [1, 2]], np.arange(4.0).reshape(2, 2))
    if kinds is None:
        model = random_model(rng, n=4, factors=12, order=3)
    path = tmp_path / f"m{suffix}"
    tm.write(model, path)
    for mutant in mutants(path.read_bytes(), rng, 300):
        survives(path, mutant)


@pytest.mark.data
@pytest.mark.parametrize("name", ["uai/Promedas_24.uai", "wcsp/zebra.wcsp", "wcsp/404.wcsp.xz", "wcsp/bqp100-1.qpbo"])
def test_fuzz_real_files(tmp_path, name):
    path = data_file(name)
    rng = np.random.default_rng(2)
    for mutant in mutants(path.read_bytes(), rng, 40):
        survives(tmp_path / path.name, mutant)
