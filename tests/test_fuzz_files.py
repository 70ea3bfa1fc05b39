"""A fixed number of mutated files of every format; ``python -m tests.fuzz`` runs as many as time allows."""

from __future__ import annotations

from fuzz.files import fuzz_files


def test_mutated_files(tmp_path):
    counts = fuzz_files(0.0, seed=0, out=tmp_path, cases=1500)
    found = [f"{p.name}: {p.read_text()}" for p in sorted(tmp_path.glob("*.reason.txt"))]
    assert counts["failures"] == 0, "\n".join(found)
    assert min(counts.values() - {0}) > 20 and counts["(read)"] > 100 and counts["(refused)"] > 500
