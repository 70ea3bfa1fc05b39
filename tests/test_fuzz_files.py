"""A fixed number of mutated files of every format; ``make fuzz`` runs as many as time allows."""

from __future__ import annotations

from fuzz.files import Child, fuzz_files, make_case
from fuzz.mutations import seeds


def test_mutated_files(tmp_path):
    counts = fuzz_files(0.0, seed=0, out=tmp_path, cases=800)
    found = [f"{p.name}: {p.read_text()}" for p in sorted(tmp_path.glob("*.reason.txt"))]
    assert counts.pop("failures") == 0, "\n".join(found)
    assert counts["(read)"] > 50 and counts["(refused)"] > 500  # neither harmless nor hopeless
    assert all(counts[name] >= 25 for name in seeds())


def test_the_fuzzer_sees_failures(tmp_path):
    """Undamaged files are read; another exception than ModelError, and the end of the process, are failures."""
    child = Child()
    for name, seed in seeds().items():
        path = tmp_path / ".".join(filter(None, ["m", seed.suffix, seed.packed]))
        path.write_bytes(seed.intact())
        assert child.read(seed.kind, path, seed.options) == ("read", ""), name
    outcome, reason = child.read("model", tmp_path / "m.uai", {"nonsense": 1})
    assert outcome == "failure" and reason.startswith("OptionError")
    child.process.kill()
    assert child.read("model", tmp_path / "m.uai", {}) is None
    assert "code -9" in child.end()


def test_cases_are_reproducible():
    found = seeds()
    assert [make_case(found, 3, c) for c in range(60)] == [make_case(found, 3, c) for c in range(60)]
    assert make_case(found, 3, 1) != make_case(found, 4, 1)
