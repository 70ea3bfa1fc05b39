"""The claims of the paper are judged by the measured means: made-up runs with known verdicts."""

from __future__ import annotations

from tightmap.bench.claims import claims_table, paper_page, time_limits, verdicts
from tightmap.bench.tables import Entry, Group


def group(family, energies, bound=None):
    g = Group(family, instances=["a", "b"], methods=list(energies))
    for method, value in energies.items():
        for instance in g.instances:
            g.measured[instance, method] = Entry(value=value, bound=bound, verified=bound is not None)
    return g


def verdict(groups, words):
    return next(v for v in verdicts(groups) if words in v.claim)


def test_a_claim_holds_fails_or_is_not_judged():
    good = group("inpainting-n4", {"admm": 1.0, "bcd": 3.0, "pgd": 2.0, "fw": 1.5})
    assert verdict([good], "significantly outperforms").holds is True
    bad = group("inpainting-n4", {"admm": 2.0, "bcd": 3.0, "pgd": 1.0, "fw": 2.5})
    found = verdict([bad], "significantly outperforms")
    assert found.holds is False and found.evidence == ["inpainting-n4: admm 2.00, pgd 1.00"]
    assert verdict([group("stereo", {"srmp": 1.0})], "significantly outperforms").holds is None


def test_equal_energies_do_not_speak_against():
    assert verdict([group("stereo", {"trws": 5.0, "admm": 5.0})], "TRW-S is best").holds is True


def test_matching_needs_a_clear_distance():
    assert verdict([group("matching", {"admm": 10.0, "ad3": 10.1})], "far behind").holds is False
    assert verdict([group("matching", {"admm": 10.0, "ad3": 15.0})], "far behind").holds is True


def test_proofs_and_best_values():
    assert verdict([group("segmentation", {"srmp": 1.0}, bound=1.0)], "SRMP proves").holds is True
    assert verdict([group("segmentation", {"srmp": 1.0})], "SRMP proves").holds is False
    assert verdict([group("matching", {"mplp-c": 2.0, "auto": 1.0})], "MPLP-C reaches").holds is False


def test_the_page_has_every_part():
    text = paper_page([group("stereo", {"auto": 1.0, "trws": 2.0})], "TABLES", "CONDITIONS")
    assert "TABLES" in text and "CONDITIONS" in text and claims_table([]).count("not measured") > 10
    assert "| stereo | tsukuba, venus, teddy |" in text


def test_time_limits_are_told_by_family_where_they_differ():
    runs = [{"family": f, "time_limit": t} for f, t in (("stereo", 60.0), ("matching", 20.0), ("stereo", 60.0))]
    assert time_limits(runs) == "at most 20 s each (matching), 60 s each (stereo)"
    assert time_limits(runs[:1]) == "at most 60 s each"
    assert time_limits([]) == "no time limit"
