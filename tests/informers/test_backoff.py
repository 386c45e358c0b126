import pytest
from hypothesis import given
from hypothesis import strategies as st

from informers.ratelimit import Backoff


def longest(**kwargs: float) -> Backoff:
    return Backoff(initial_s=0.8, maximum_s=30.0, chance=lambda: 1.0, **kwargs)


def delays(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next(now=0.0) for _ in range(count)]


def test_the_ceiling_doubles_with_each_failure_up_to_the_maximum():
    assert delays(longest(), 7) == pytest.approx([1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0])


@pytest.mark.parametrize(
    ("failures", "reset_after_s", "quiet_s", "next_s"),
    [(1, 120.0, 119.9, 3.2), (5, 120.0, 120.0, 1.6), (7, 20.0, -1.0, 30.0)],
    ids=["the time without failures is too short", "two minutes are enough", "it begins at the end of the last delay"],
)
def test_delays_start_over_after_some_time_without_failures(failures, reset_after_s, quiet_s, next_s):
    backoff = longest(reset_after_s=reset_after_s)
    last = delays(backoff, failures)[-1]
    assert backoff.next(now=last + quiet_s) == pytest.approx(next_s)


def test_delays_start_over_after_reset():
    backoff = longest()
    delays(backoff, 5)
    backoff.reset()
    assert backoff.next(now=0.0) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("initial_s", "maximum_s", "factor"),
    [(0.0, 1.0, 2.0), (2.0, 1.0, 2.0), (1.0, 2.0, 0.5)],
    ids=["no initial delay", "maximum below initial", "shrinking"],
)
def test_invalid_arguments_are_rejected(initial_s, maximum_s, factor):
    with pytest.raises(ValueError, match="a backoff needs"):
        Backoff(initial_s=initial_s, maximum_s=maximum_s, factor=factor)


@given(
    chances=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=30),
    gaps=st.lists(st.floats(0, 300), min_size=30, max_size=30),
)
def test_every_delay_lies_between_the_initial_and_the_maximum(chances, gaps):
    draws = iter(chances)
    backoff = Backoff(initial_s=0.8, maximum_s=30.0, chance=lambda: next(draws))
    now = 0.0
    for _, gap in zip(chances, gaps, strict=False):
        now += gap
        assert 0.8 <= backoff.next(now) <= 30.0
