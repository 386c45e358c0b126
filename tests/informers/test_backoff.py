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


def test_the_distribution_is_uniform_between_the_initial_delay_and_the_ceiling():
    assert Backoff(initial_s=1.0, maximum_s=30.0, chance=lambda: 0.5).next(now=0.0) == 1.5


def test_delays_grow_if_the_time_without_failures_was_too_short():
    backoff = longest(reset_after_s=120.0)
    first = backoff.next(now=0.0)
    assert backoff.next(now=first + 119.9) == pytest.approx(3.2)


def test_delays_start_over_after_two_minutes_without_failures():
    backoff = longest(reset_after_s=120.0)
    last = delays(backoff, 5)[-1]
    assert backoff.next(now=last + 120.0) == pytest.approx(1.6)


def test_the_time_without_failures_begins_at_the_end_of_the_last_delay():
    backoff = longest(reset_after_s=20.0)
    delays(backoff, 7)
    assert backoff.next(now=29.0) == 30.0


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
