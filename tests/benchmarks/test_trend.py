"""The statistics of the soak: which series count as flat."""

from collections.abc import Callable
from random import Random

import pytest

from benchmarks.soak.trend import Tolerance, judge

COUNT = 400
TIMES = [5.0 * number for number in range(COUNT)]
TOLERANCE = Tolerance(share=0.05, least=1.0)


def noise(seed: int = 1, size: float = 3.0) -> list[float]:
    chance = Random(seed)
    return [chance.gauss(0, size) for _ in TIMES]


def test_a_slow_leak_under_noise_is_not_flat():
    leak = [100 + 20 * number / COUNT + each for number, each in enumerate(noise())]
    verdict = judge(TIMES, leak, TOLERANCE)
    assert not verdict.flat
    assert verdict.slope_per_hour == pytest.approx(20 / (5 * COUNT) * 3600, rel=0.1)


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        pytest.param(lambda number: min(number, COUNT // 4), True, id="growth in the first quarter"),
        pytest.param(lambda number: 100 + 4 * number / COUNT, True, id="growth within the tolerance"),
        pytest.param(lambda number: 100 + 12 * number / COUNT, False, id="growth above the tolerance"),
        pytest.param(lambda number: COUNT - number, True, id="a fall"),
        pytest.param(lambda number: 100 if number < COUNT * 2 / 3 else 150, False, id="a step in the last third"),
        pytest.param(lambda number: 100 + 10 * (number // 50), False, id="steps that come again and again"),
        pytest.param(lambda number: 0, True, id="zero"),
        pytest.param(lambda number: 0 if number < COUNT * 2 / 3 else 0.9, True, id="up to the least tolerance"),
        pytest.param(lambda number: 0 if number < COUNT * 2 / 3 else 1.1, False, id="above the least tolerance"),
    ],
)
def test_a_series_is_flat_if_it_grows_within_the_tolerance_after_the_warm_up(
    value: Callable[[int], float], flat: bool
) -> None:
    assert judge(TIMES, [float(value(number)) for number in range(COUNT)], TOLERANCE).flat is flat


def test_a_series_that_approaches_a_limit_is_flat():
    verdict = judge(
        TIMES, [100 - 60 * 0.5 ** (8 * number / COUNT) + each for number, each in enumerate(noise())], TOLERANCE
    )
    assert verdict.late - verdict.early > verdict.allowed
    assert verdict.flat


def test_too_few_samples_are_an_error():
    with pytest.raises(ValueError, match="7 samples are too few"):
        judge(TIMES[:7], [1.0] * 7, TOLERANCE)
