"""OPTIMAL, INFEASIBLE and bounds mean what they say, in whatever unit costs are given and whatever is added to them."""

import itertools
import math
import warnings

import numpy as np
import pytest

import tightmap as tm
from tightmap.energy.certificate import Certified, Proof
from tightmap.energy.energies import energy, trivial_bound

SCALES = [1.0, 1e-9, 1e-12, 3e-300, 5e-322, 1e200, 2.0**-1000]


def frustrated(seed, scale=1.0, constant=0.0, hard=False):
    """Five variables of three labels on a complete graph: the pairwise relaxation is mostly not tight."""
    rng = np.random.default_rng(seed)
    unary, tables = rng.normal(size=(5, 3)), rng.normal(size=(10, 3, 3))
    if scale < 1e-307:  # so small that few bits are left: whole multiples of the smallest number
        unary, tables = np.rint(4 * unary), np.rint(4 * tables)
    if hard:
        tables[rng.random(tables.shape) < 0.2] = np.inf
    model = tm.Model([3] * 5)
    model.add_unaries(unary * scale)
    model.add_factors(list(itertools.combinations(range(5), 2)), tables * scale)
    model.add_constant(constant)
    return model


def optimum(model):
    return min(model.energy(np.array(x)) for x in itertools.product(range(3), repeat=5))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", ["trws", "exact", "combilp", "auto"])
def test_optimal_at_every_scale(method, scale):
    for seed in range(12):
        model = frustrated(seed, scale)
        best = optimum(model)
        result = tm.solve(model, method, max_iterations=None if method == "exact" else 200)
        assert result.lower_bound <= best
        assert result.energy == model.energy(result.labels) >= best
        if result.status is tm.Status.OPTIMAL:
            assert result.energy - best <= 1e-12 * abs(best)
        assert result.status is tm.Status.OPTIMAL or method == "trws"


@pytest.mark.parametrize("method", ["trws", "exact", "combilp"])
def test_the_same_claims_for_a_model_times_a_power_of_two(method):
    """A power of two is exact in floating point, so everything but the unit has to be the same."""
    for seed in range(12):
        plain = tm.solve(frustrated(seed, 2.0**-10), method, max_iterations=100)
        tiny = tm.solve(frustrated(seed, 2.0**-900), method, max_iterations=100)
        assert (plain.status, plain.labels.tolist()) == (tiny.status, tiny.labels.tolist())
        assert tiny.energy == math.ldexp(plain.energy, -890)
        assert tiny.lower_bound == math.ldexp(plain.lower_bound, -890)


@pytest.mark.parametrize("constant", [1e3, -1e9, 1e15])
def test_the_same_claims_after_a_constant_was_added(constant):
    for seed in range(12):
        plain, moved = (tm.solve(frustrated(seed, 1.0, c), "trws", max_iterations=200) for c in (0.0, constant))
        assert (plain.status, plain.labels.tolist()) == (moved.status, moved.labels.tolist())
        assert moved.lower_bound <= optimum(frustrated(seed, 1.0, constant))


@pytest.mark.parametrize("method", ["qpbo", "expansion", "swap", "fusion", "admm", "srmp", "mplp", "bcd", "cqp"])
@pytest.mark.parametrize("scale", [1e-300, 5e-322, 1e200])
def test_no_method_overflows_at_extreme_scales(method, scale):
    rng = np.random.default_rng(4)
    model = tm.Model([2] * 6)
    model.add_unaries(np.rint(8 * rng.random((6, 2))) * scale)
    model.add_potts(list(itertools.combinations(range(6), 2)), np.rint(1 + 3 * rng.random(15)) * scale)
    best = min(model.energy(np.array(x)) for x in itertools.product(range(2), repeat=6))
    result = tm.solve(model, method, max_iterations=50)
    assert result.lower_bound <= best <= result.energy < np.inf
    if result.status is tm.Status.OPTIMAL:
        assert result.energy == best


@pytest.mark.parametrize("power", [-1000, -300, 500])
def test_every_kind_of_factor_in_another_unit(power):
    """The canonical form of a model in unusual units has the energies of the model, whatever its factors are."""
    rng = np.random.default_rng(1)
    s = 2.0**power
    model = tm.Model([3, 3, 3, 3])
    model.add_unaries(rng.normal(size=(4, 3)) * s)
    model.add_potts([[0, 1]], 2.0 * s)
    model.add_truncated_linear([[1, 2]], 3.0 * s, 1.5)
    model.add_truncated_quadratic([[2, 3]], 5.0 * s)
    model.add_factors([[0, 3]], rng.normal(size=(3, 3)), weights=s)
    model.add_factors([[1, 3]], rng.normal(size=(3, 3)) * s)
    model.add_pn_potts([[0, 1, 2]], s, [1.0, 2.0, 3.0], 4.0)
    model.add_label_patterns([[1, 2, 3]], np.arange(5.0) * s)
    model.add_sparse([[0, 1, 2, 3]], [[0, 0, 0, 0], [2, 1, 0, 1]], [3.0 * s, -s], 0.5 * s)
    model.add_second_difference([[0, 1, 2]], [1.0], rng.normal(size=(4, 3)) * s, 2.0 * s)
    graph = model.graph()
    assert graph.power != 0
    for x in itertools.product(range(3), repeat=4):
        labels = np.array(x)
        assert graph.user_energy(energy(graph, labels)) == pytest.approx(model.energy(labels), rel=1e-12, abs=1e-13 * s)


def test_infeasible_at_every_scale():
    for scale in (1.0, 1e-12, 1e-300, 1e200):
        model = tm.Model([2, 2, 2])
        model.add_unaries(np.arange(6.0).reshape(3, 2) * scale)
        different = np.array([[np.inf, scale], [scale, np.inf]])
        model.add_factors([[0, 1], [1, 2], [0, 2]], different)
        result = tm.solve(model, "exact")
        assert result.status is tm.Status.INFEASIBLE
        assert not result.feasible and result.lower_bound == np.inf


@pytest.mark.parametrize("method", ["bcd", "exact", "trws"])
def test_hard_constraints_beside_costs_of_very_different_size(method):
    """The cost that stands for +inf must not be lost in the rounding of the largest finite cost."""
    model = tm.Model([2, 1, 2])
    model.add_unaries([[0.0, 0.0], [0.0], [10.0, 0.0]])
    model.add_factors([[0, 2]], [[np.inf, 0.0], [-1e-322, 0.0]])
    model.add_factors([[1, 2]], [[-1e-322, np.inf]])
    seen = []
    result = tm.solve(model, method, callback=seen.append)
    assert (result.feasible, result.energy, result.labels.tolist()) == (True, 10.0, [1, 0, 0])
    assert all(info.energy == model.energy(info.labels) for info in seen)


def test_constants_of_unusual_size_beside_other_costs():
    model = tm.Model([1, 1, 1])
    model.add_label_patterns([[1, 0, 2]], [0.0, 0.0, 0.0, 0.0, 4e-323])
    model.add_unaries([[-1.0]], nodes=[0])
    assert tm.solve(model, "bcd").energy == -1.0
    for costs in ([np.inf, 1e300], [1e300, 1e300], [-1e300, -1e300]):
        model = tm.Model([2])
        model.add_unaries([costs])
        result = tm.solve(model, "bcd")
        assert (result.status, result.energy) == (tm.Status.OPTIMAL, min(costs))


def test_large_offsets_of_tables_are_no_reason_to_claim_more():
    """Differences of 1 beside offsets of 2^40 can be told apart in float64."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(30):
        model = tm.Model([2] * 6)
        model.add_unaries(2.0**40 + rng.integers(-4, 4, (6, 2)))
        model.add_factors(
            list(itertools.combinations(range(6), 2))[::2], 2.0**40 + rng.integers(-4, 4, (8, 2, 2)).astype(float)
        )
        best = min(model.energy(np.array(x)) for x in itertools.product(range(2), repeat=6))
        result = tm.solve(model, "trbp", max_iterations=30)
        assert result.lower_bound <= best
        wrong += result.status is tm.Status.OPTIMAL and result.energy > best
    assert wrong == 0


@pytest.mark.parametrize("method", ["combilp", "exact", "trws", "srmp", "ad3", "auto"])
def test_large_offsets_of_tables_with_fractions(method):
    """What many roundings may add up to is no measure of what two energies differ by."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        model = tm.Model([3] * 6)
        model.add_unaries(2.0**40 + rng.normal(size=(6, 3)))
        model.add_factors(list(itertools.combinations(range(6), 2))[::2], 2.0**40 + rng.normal(size=(8, 3, 3)))
        best = min(model.energy(np.array(x)) for x in itertools.product(range(3), repeat=6))
        rounding = 2.0**-53 * 2 * 14 * 14 * 2.0**40  # of two sums of fourteen terms
        result = tm.solve(model, method, max_iterations=60)
        assert result.lower_bound <= best + rounding
        assert result.status is not tm.Status.OPTIMAL or result.energy <= best + rounding


def test_costs_whose_sum_is_no_number_are_refused():
    model = tm.Model([2, 2])
    model.add_unaries(np.full((2, 2), 1.7e308))
    model.add_potts([[0, 1]], [1e308])
    with pytest.raises(tm.ModelError, match="too large"):
        tm.solve(model)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("method", ["trws", "exact", "auto", "qpbo", "bcd"])
def test_costs_that_vanish_beside_others_are_not_forgotten(method, sign):
    """No unit holds 1e300 and 1e-150: the bound must leave room for what is lost, and nothing is claimed about it."""
    model = tm.Model([2] * 3)
    model.add_unaries([[0.0, 1e-300], [1e300, 0.0], [0.0, 1.0]])
    model.add_potts([[0, 1], [1, 2]], sign * 1e-150)
    best = min(model.energy(x) for x in itertools.product(range(2), repeat=3))
    result = tm.solve(model, method)
    assert result.lower_bound <= best
    assert result.status is not tm.Status.OPTIMAL or result.energy <= best * (1 + 1e-9 * np.sign(best))


def test_costs_that_vanish_inside_a_table_are_not_forgotten():
    model = tm.Model([2] * 3)
    model.add_factors([[0, 1], [1, 2]], [[[1e90, -1e-250], [0.0, 1e-249]], [[1e-200, 0.0], [1e-201, 1e-202]]])
    model.add_unaries(np.full((3, 2), 1e-200) * [[0, 1]])
    best = min(model.energy(x) for x in itertools.product(range(2), repeat=3))
    for method in ("trws", "exact", "auto"):
        result = tm.solve(model, method)
        assert result.lower_bound <= best
        assert result.status is not tm.Status.OPTIMAL or result.energy - best <= 1e-9 * abs(best)


def test_large_messages_prove_nothing():
    """An error bound far above the costs is no reason to call a difference rounding."""
    model = frustrated(0)
    graph = model.graph()
    labels = np.zeros(5, dtype=np.int64)
    value = energy(graph, labels)
    assert not Proof(graph).holds(labels, value, Certified(value - 1e-3, error=1.0))
    assert Proof(graph).holds(labels, value, Certified(value - 1e-15, error=1e-15))
    assert not Proof(graph).holds(labels, value, Certified(value - 1e-13, error=0.0))


def test_all_zero_costs_are_proven_at_once():
    model = tm.Model([2, 3])
    model.add_factors([[0, 1]], np.array([[0.0, 0.1, 0.7], [0.2, 0.3, 0.0]]))
    graph = model.graph()
    labels = np.zeros(2, dtype=np.int64)
    assert Proof(graph).holds(labels, energy(graph, labels), trivial_bound(graph))


@pytest.mark.parametrize("costs", [[np.inf, 0.0], [0.0, 1.0 - 2e-10]])
def test_an_exact_zero_is_believed(costs):
    model = tm.Model([2])
    model.add_unaries([costs])
    result = tm.solve(model, "exact")
    assert (result.status, result.energy, result.lower_bound) == (tm.Status.OPTIMAL, 0.0, 0.0)


def test_a_block_that_costs_nothing_beside_subnormal_costs():
    model = tm.Model([2, 2, 2])
    model.add_factors([[0, 2]], [[1e-323, 0.0], [0.0, 2e-323]])
    model.add_factors([[0, 1]], np.zeros((2, 2)))
    assert tm.solve(model, "bcd").energy == 0.0


def test_bounds_in_the_users_units_round_down():
    model = frustrated(3, 1.0, constant=1e17)
    graph = model.graph()
    for bound in np.random.default_rng(0).normal(size=200):
        from fractions import Fraction

        assert Fraction(graph.user_bound(float(bound))) <= Fraction(float(bound)) + Fraction(graph.shift)


def test_certified_bounds_survive_copies():
    import copy
    import pickle

    bound = Certified(1.5, 1e-3)
    for twin in (copy.copy(bound), copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        assert twin == 1.5 and twin.error == 1e-3


@pytest.mark.parametrize("method", ["admm", "pgd", "fw", "cqp"])
def test_a_model_with_hard_costs_is_the_same_model_when_scaled(method):
    # the finite stand-in of +inf, and the softer one that gradients see, are multiples of the finite costs
    seen = []
    for scale in (1.0, 0.5, 2.0**-7):
        model = tm.Model([2, 2, 2])
        model.add_factors([[1, 0]], [[0.0, 0.0], [0.0, -2.0]], weights=[3.0 * scale])
        model.add_factors([[0, 2]], [[2.0, -1.0], [-1.0, math.inf]], weights=[scale])
        graph = model.graph()
        unit = scale * 2.0**graph.power  # of the costs in the graph
        value = tm.solve(model, method, max_iterations=5).energy
        seen.append((graph.hard / unit, graph.soft_range / unit, value / scale))
    assert seen[0] == seen[1] == seen[2]


def test_infeasible_where_finite_costs_do_not_differ():
    # the stand-in of +inf must stand out against the size of the costs, not only against their differences
    model = tm.Model([1, 2, 2])
    model.add_factors([[0, 1]], [[math.inf, 0.0]])
    model.add_factors([[1, 2]], [[math.inf, 0.7], [math.inf, math.inf]])
    assert tm.solve(model, "exact").status is tm.Status.INFEASIBLE


@pytest.mark.parametrize("method", ["fusion", "fastpd", "qpbo"])
def test_subnormal_costs_beside_ordinary_ones(method):
    model = tm.Model([2, 1, 2])
    model.add_factors([[0, 1]], [[0.0], [1e-322]], weights=[0.1])
    model.add_factors([[0, 2]], [[0.0, 0.0], [0.0, 1.0]], weights=[0.1])
    assert tm.solve(model, method).energy <= 1e-322
    model = tm.Model([2, 2])  # a table that no factor uses is of another size than those in use
    tables = [[[0.0, 2e-322], [2e-322, 0.0]], [[0.0, 0.0], [0.0, -0.2]]]
    model.add_indexed_factors([[0, 1]], tables, [0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tm.solve(model, method).energy == 0.0


def test_noise_of_admm_beside_subnormal_costs():
    # most costs are subnormal and choose the unit, in which the others are beyond single precision
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, 2e-322], [0.0, 0.0]])
    model.add_factors([[0, 1]], [[2.0, 2e-322], [0.0, 0.0]])
    for _ in range(3):
        model.add_unaries([[0.0, 2e-322]], nodes=[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tm.solve(model, "admm", max_iterations=20).energy <= 1e-321


def test_exact_search_in_a_room_of_subnormal_costs():
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, -1e-322], [0.0, 2.0]])
    model.add_potts([[0, 1]], [2e-322])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tm.solve(model, "exact").energy <= 0.0


def test_costs_beyond_single_precision_on_a_grid():
    # most costs are subnormal and choose the unit; in it the others are infinite in single precision
    model = tm.Model.grid(3, 3, 2)
    costs = np.zeros((9, 2))
    costs[4, 1] = -1.0
    model.add_unaries(costs)
    model.add_potts(model.edges(), 2e-322)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tm.solve(model, "admm", max_iterations=30).energy <= -1.0


@pytest.mark.parametrize("method", ["fw", "pgd", "cqp", "trws", "srmp", "bundle", "tabu", "lns", "forest-annealing"])
@pytest.mark.parametrize("power", [-3, 3, -500, 100])
def test_searches_go_the_same_way_in_any_unit(method, power):
    # tolerances were measured by 1 + |energy|, so a power of two changed where a search stopped
    options = {"tolerance": 1.0} if method in ("fw", "pgd", "cqp") else {}
    found = []
    for factor in (1.0, 2.0**power):
        model = tm.Model([2, 3])
        entries, values = [[1, 1], [2, 0]], [-2.0, -1.75]
        model.add_sparse([[1, 0]], entries, values, 0.0, weights=[3.0 * factor])
        result = tm.solve(model, method, max_iterations=2, seed=56, **options)
        found.append((result.status, result.energy / factor, result.labels.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("method", ["bcd", "trws", "auto", "exact"])
def test_what_is_forbidden_stays_so_beside_huge_costs(method):
    """Costs of 1e-265 vanish beside 1e170, but +inf in the same table does not."""
    model = tm.Model([1, 2, 2, 2])
    model.add_factors([[0, 2]], [[np.inf, -4e-265]], weights=[3.0])
    model.add_potts([[1, 3]], [2e170])
    result = tm.solve(model, method)
    assert result.labels[2] == 1 and np.isfinite(result.energy)
    assert result.lower_bound <= result.energy


def test_a_model_without_choices_is_solved_whatever_was_lost():
    model = tm.Model([1, 1])
    model.add_unaries([[0.0], [2e285]])
    model.add_factors([[0, 1]], [[-2e-322]])
    result = tm.solve(model, "bcd", time_limit=0.0)
    assert result.status is tm.Status.OPTIMAL and result.lower_bound == result.energy == model.energy([0, 0])


def test_tables_of_the_smallest_and_largest_numbers_are_recognised_without_a_word():
    model = tm.Model([3, 3, 2, 2])
    model.add_factors([[0, 2]], [[-2e-322, -3.95e-322], [-0.0, -2e-322], [-2e-322, -0.0]])
    model.add_factors([[0, 3]], [[-2.0, -4.0], [-0.0, -2.0], [-2.0, -0.0]])
    tm.solve(model, "bcd")
    model = tm.Model([2, 3])
    model.add_factors([[0, 1]], [[0.0, 2e-31, -9e284], [0.0, 0.0, 0.0]])
    tm.solve(model, "bcd")
    model = tm.Model([2, 2, 2, 2, 2, 2])  # proportional tables, by a factor that no weight could take
    model.add_factors([[4, 5]], [[0.0, 0.0], [0.0, 4e-11]])
    model.add_factors([[2, 3]], [[0.0, 0.0], [0.0, -4e239]])
    model.add_factors([[0, 1]], [[0.0, 0.0], [0.0, 8e19]])
    assert tm.solve(model, "bcd").energy == -4e239


def test_no_time_for_unaries_alone():
    model = tm.Model([2, 2])
    model.add_unaries([[0.0, 2e285], [1e-322, 3e-322]])
    assert tm.solve(model, "bcd", time_limit=0.0).status in (tm.Status.TIME_LIMIT, tm.Status.OPTIMAL)


def test_bounds_allow_for_values_whose_differences_vanish():
    """w a - 2 w b + w c is rounded where a - 2 b + c is zero: beside costs of 1200 that is no small matter here."""
    model = tm.Model([2, 2, 2, 2, 2])
    values = [[0.0, 0.0], [0.0, 0.0], [-0.5, 0.0], [0.0, -3.0], [-1.75, 2.0]]
    model.add_second_difference([[3, 4, 2]], [1e285], values, limit=2.0)
    model.add_factors([[1, 0]], [[400.0, 0.0], [-400.0, 0.0]], weights=[3.0])
    graph = model.graph()
    assert graph.user_bound(trivial_bound(graph)) <= -1200.0


def test_second_differences_are_still_proven():
    model = tm.Model([4] * 5)
    model.add_unaries(np.random.default_rng(1).random((5, 4)))
    model.add_second_difference([[0, 1, 2], [1, 2, 3], [2, 3, 4]], 0.3, [[0.3, 1.1, 2.2, 3.7]] * 5, limit=2.0)
    assert tm.solve(model).status is tm.Status.OPTIMAL


def test_ad3_beside_factors_that_cost_next_to_nothing():
    """The first penalty was a typical range of the factors, 5e-324 here; costs over it were infinite, labels none."""
    model = tm.Model([2, 2, 3])
    model.add_unaries([[-9e284, -5e284], [6e284, 2e285], [-1.6e285, -6e284, 2.4e285]])
    model.add_factors([[1, 2]], [[np.inf, np.inf, np.inf], [-3.5e-323, np.inf, -2e-322]])
    model.add_factors([[0, 1]], [[np.inf, np.inf], [-2.4e-322, -1.9e-322]])
    result = tm.solve(model, "ad3")
    assert result.energy == model.energy(result.labels) == model.energy([1, 1, 0])


def test_ad3_branches_with_multipliers_beyond_single_precision():
    labels = [2] * 10 + [3]
    model, other = tm.Model(labels), tm.Model(labels)
    model.add_potts([[5, 8]], [2.0])
    model.add_truncated_linear([[7, 9]], [6.024158020371534e284], 1.5)
    model.add_truncated_quadratic([[8, 10]], [0.31690324555376237], 1.5)
    other.add_factors([[5, 8]], [[2.0, 0.0], [0.0, 2.0]])
    other.add_factors([[7, 9]], [[6.024158020371534e284, 0.0], [0.0, 6.024158020371534e284]])
    other.add_factors([[8, 10]], [[0.0, 0.3, 0.3], [0.3, 0.0, 0.5]])
    before = tm.solve(other, "mplp", max_iterations=20, seed=1)
    options = {"relaxation": 1.0, "absorb": False, "exact": True, "tolerance": 0.01}
    assert tm.solve(model, "ad3", seed=96, init=before, **options).energy == 0.0


def test_admm_on_grids_whose_weights_are_beyond_single_precision():
    model = tm.Model([2, 2, 2])  # in units of the tiny unaries the weight is 2^300
    model.add_unaries([[0.0, 0.0], [0.0, 1e-322], [0.0, -2e-323]])
    model.add_potts([[1, 2]], [-2.0])
    assert tm.solve(model, "admm", max_iterations=5).energy == -2.0
