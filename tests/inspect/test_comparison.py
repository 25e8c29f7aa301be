"""Comparing runs: the rank test against counting by hand, gates on noise and on planted changes, Amdahl's law."""

import random
from itertools import combinations
from math import comb
from statistics import mean

import msgspec
import pytest
from vmsonar_archive.system.errors import UsageError
from vmsonar_inspect.facts.comparison import Side, compare, rank_test
from vmsonar_inspect.facts.quantities import Energy
from vmsonar_inspect.facts.runs import RunUse


def _side(name, cpu, **more):
    return Side(name=name, runs=[RunUse(cpu_seconds=value, elapsed_seconds=value, **more) for value in cpu])


def _noisy(generator, level, repeats=5, noise=0.01):
    return [level * generator.lognormvariate(0, noise) for _ in range(repeats)]


def test_the_rank_test_is_exact():
    assert rank_test([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(1 / 252)
    assert rank_test([6, 7, 8, 9, 10], [1, 2, 3, 4, 5]) == 1
    assert rank_test([1, 2, 3], [4, 5, 6]) == pytest.approx(1 / 20)
    # The table of Mann and Whitney (1947), n = m = 4: U = 1 has 2 of 70 arrangements at or below it.
    assert rank_test([1, 2, 3, 5], [4, 6, 7, 8]) == pytest.approx(2 / 70)
    assert rank_test([1, 1, 1], [1, 1, 1]) == 1


def test_the_rank_test_is_exact_with_equal_values_and_many_repeats():
    """Against every arrangement, one by one."""
    low, high = [1, 2, 2, 3, 5, 5, 9], [2, 4, 5, 5, 7, 8, 9, 9]
    pooled = low + high
    ranks = [mean(place for place, other in enumerate(sorted(pooled)) if other == each) for each in pooled]
    sums = [sum(each) for each in combinations(ranks, len(high))]
    assert rank_test(low, high) == mean(each >= sum(ranks[len(low) :]) for each in sums)
    many = list(range(12))
    assert rank_test(many, [each + 12 for each in many]) == pytest.approx(1 / comb(24, 12))
    assert rank_test([each + 12 for each in many], many) == 1


def test_of_200_sets_of_equal_repeats_at_most_4_fail():
    generator = random.Random(1)
    for gate in ("cpu<=+0%", "cpu<=+5%"):
        failed = 0
        for _ in range(200):
            sides = (
                _side("A", _noisy(generator, 10, noise=0.03)),
                _side("B", _noisy(generator, 10, noise=0.03)),
            )
            failed += compare(sides, [gate]).gates[0].failed
        assert failed <= 4, gate


def test_a_planted_tenth_is_found():
    generator = random.Random(2)
    found = sum(
        compare((_side("A", _noisy(generator, 10)), _side("B", _noisy(generator, 11))), ["cpu<=+5%"])
        .gates[0]
        .failed
        for _ in range(100)
    )
    assert found >= 95


def test_a_gate_decides_nothing_without_repeats():
    one, other = _side("A", [10]), _side("B", [20])
    gate = compare((one, other), ["cpu<=+5%"]).gates[0]
    assert (gate.failed, gate.decided, gate.change) == (False, False, 1.0)
    assert compare((_side("A", [1] * 5), _side("B", [1] * 5)), ["cpu<=+5%"]).gates[0].decided


@pytest.mark.parametrize("gate", ["cpu", "cpu<5%", "speed<=+5%", "cpu<=+5", "cpu<=five%"])
def test_a_gate_that_says_nothing_is_refused(gate):
    with pytest.raises(UsageError, match="such as cpu<="):
        compare((_side("A", [1]), _side("B", [1])), [gate])


def test_an_unknown_measure_never_passes_a_gate():
    with pytest.raises(UsageError, match="not known of both sides"):
        compare((_side("A", [1]), _side("B", [1])), ["memory_peak<=+5%"])


def test_a_gate_over_figures_that_are_not_exact_says_so():
    """What a sample missed no gate can find."""
    known = _side("A", [1], memory_peak_bytes=5.0, memory_peak_source="high_water")
    sampled = _side("B", [1], memory_peak_bytes=5.0, memory_peak_source="sampled")
    gates = compare((known, sampled), ["memory_peak<=+5%", "cpu<=+5%"]).gates
    assert [gate.is_uncertain for gate in gates] == [True, False]
    assert not compare((known, known), ["memory_peak<=+5%"]).gates[0].is_uncertain
    guessed, measured = (
        _side("", [1], energy=Energy(joules=5.0, source=source)) for source in ("estimate", "measured")
    )
    assert compare((measured, guessed), ["energy<=+5%"]).gates[0].is_uncertain
    assert not compare((measured, measured), ["energy<=+5%"]).gates[0].is_uncertain


def test_differences_are_of_medians_with_spread_and_chance():
    found = compare((_side("A", [10, 11, 12]), _side("B", [20, 22, 24])))
    cpu = next(each for each in found.differences if each.measure == "cpu")
    assert (cpu.before, cpu.after, cpu.change) == (11, 22, 1.0)
    assert cpu.spread_before == pytest.approx(2 / 11)
    assert cpu.p == pytest.approx(2 / 20)
    memory = next(each for each in found.differences if each.measure == "memory_peak")
    assert (memory.before, memory.change, memory.p) == (None, None, None)


def _scaled(serial, whole=100.0, noise=0.0, cores=(1, 2, 4, 8)):
    generator = random.Random(3)
    return [
        Side(
            name=str(each),
            runs=[
                RunUse(
                    command="make",
                    elapsed_seconds=whole
                    * (serial + (1 - serial) / each)
                    * generator.lognormvariate(0, noise),
                    cores_available=float(each),
                )
                for _ in range(3)
            ],
        )
        for each in cores
    ]


@pytest.mark.parametrize("serial", [0.0, 0.1, 0.5, 1.0])
def test_the_serial_share_is_found(serial):
    scaling = compare(_scaled(serial)).scaling
    assert scaling.serial_share == pytest.approx(serial, abs=0.001)
    assert scaling.serial_share_error == pytest.approx(0, abs=0.001)
    assert scaling.twice_elapsed_seconds == pytest.approx(100 * (serial + (1 - serial) / 16))
    assert [step.speed_up for step in scaling.steps] == pytest.approx(
        [1 / (serial + (1 - serial) / n) for n in (1, 2, 4, 8)]
    )


def test_the_error_of_the_serial_share_covers_the_truth():
    scaling = compare(_scaled(0.2, noise=0.03)).scaling
    assert 0 < scaling.serial_share_error < 0.05
    assert abs(scaling.serial_share - 0.2) < 3 * scaling.serial_share_error


def test_more_than_linear_speed_up_is_the_best_line_through_zero():
    times = {1: 100.0, 2: 40.0, 4: 15.0}
    sides = [
        Side(name="", runs=[RunUse(command="make", elapsed_seconds=each, cores_available=n)])
        for n, each in times.items()
    ]
    scaling = compare(sides).scaling
    slope = sum(each / n for n, each in times.items()) / sum(1 / n**2 for n in times)
    assert scaling.serial_share == 0
    assert scaling.twice_elapsed_seconds == pytest.approx(slope / 8)


def test_one_number_of_cores_shows_no_scaling():
    assert compare(_scaled(0.2, cores=(4, 4))).scaling is None


@pytest.mark.parametrize(
    "other", [{"command": None}, {"command": "sh -c ***"}, {"command": "make", "exit_code": 2}], ids=str
)
def test_work_that_may_not_be_the_same_or_was_not_done_shows_no_scaling(other):
    sides = _scaled(0.2)
    for side in sides if "exit_code" not in other else sides[:1]:
        side.runs = [msgspec.structs.replace(run, **other) for run in side.runs]
    assert compare(sides).scaling is None
