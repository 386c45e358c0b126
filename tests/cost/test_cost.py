"""The cost of each pure function that reads foreign input grows with its input, and not faster."""

from itertools import pairwise

import pytest

from tests.cost.meter import Meter, seconds
from tests.cost.rows import ROWS

MOST_GROWTH = 2.6
"""The largest ratio of two costs if the input is twice as large."""

MOST_INSTRUCTIONS = 3_000_000
CHEAP_S = 0.1
"""A call that needs less CPU time is cheap. The time of a call that is not may grow by `MOST_GROWTH_OF_TIME` if the
input is four times as large. A quadratic cost grows by 16.
"""

MOST_GROWTH_OF_TIME = 9
LIMIT_S = 3.0


@pytest.mark.parametrize("name", ROWS)
def test_twice_the_input_costs_at_most_twice_as_many_instructions(name: str) -> None:
    row = ROWS[name]
    costs = [Meter(MOST_INSTRUCTIONS).count(row.make(row.n * times)) for times in (1, 2, 4)]
    ratios = [more / less for less, more in pairwise(costs)]
    assert max(ratios) <= MOST_GROWTH, (costs, ratios)


@pytest.mark.parametrize("name", ROWS)
def test_four_times_the_input_costs_at_most_nine_times_the_time(name: str) -> None:
    row = ROWS[name]
    large, small = row.make(row.far), row.make(row.far // 4)
    times = []
    for _ in range(3):
        times.append((seconds(large, limit_s=LIMIT_S), seconds(small, limit_s=LIMIT_S)))
        most, least = (min(each) for each in zip(*times, strict=True))
        if most <= max(CHEAP_S, MOST_GROWTH_OF_TIME * least):
            return
    raise AssertionError(times)
