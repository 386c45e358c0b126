import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from informers.ratelimit import Backoff, ItemBackoff, MaxOf, TokenBucket, default_rate_limiter


def test_a_key_waits_twice_as_long_with_each_failure_up_to_the_maximum():
    limiter: ItemBackoff[str] = ItemBackoff(initial_s=0.005, maximum_s=1000.0)
    delays = [limiter.delay("a", now=0.0) for _ in range(20)]
    assert delays[:4] == pytest.approx([0.005, 0.01, 0.02, 0.04])
    assert delays[17:] == pytest.approx([655.36, 1000.0, 1000.0])


def test_no_reference_to_a_forgotten_key_is_kept():
    class Key:
        pass

    limiter: MaxOf[Key] = MaxOf(ItemBackoff(), TokenBucket())
    key = Key()
    limiter.delay(key, now=0.0)
    references = sys.getrefcount(key)
    limiter.forget(key)
    assert sys.getrefcount(key) == references - 1


def test_a_bucket_fills_with_time_but_never_beyond_its_burst():
    bucket = TokenBucket(rate_per_s=10.0, burst=3)
    for _ in range(3):
        bucket.reserve(now=0.0)
    assert bucket.reserve(now=0.1) == 0.0
    assert [bucket.reserve(now=1000.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.0, 0.1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TokenBucket(rate_per_s=0.0, burst=1), "token bucket"),
        (lambda: TokenBucket(rate_per_s=-1.0, burst=1), "token bucket"),
        (lambda: TokenBucket(rate_per_s=1.0, burst=0), "token bucket"),
        (lambda: Backoff(initial_s=0.0, maximum_s=1.0, factor=2.0), "a backoff needs"),
        (lambda: Backoff(initial_s=2.0, maximum_s=1.0, factor=2.0), "a backoff needs"),
        (lambda: Backoff(initial_s=1.0, maximum_s=2.0, factor=0.5), "a backoff needs"),
        (MaxOf, "at least one limiter"),
    ],
)
def test_invalid_arguments_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(gaps=st.lists(st.floats(0, 2), min_size=1, max_size=60), burst=st.integers(1, 10))
def test_no_period_has_more_attempts_than_burst_and_rate_allow(gaps, burst):
    bucket = TokenBucket(rate_per_s=5.0, burst=burst)
    now, used_at = 0.0, []
    for gap in gaps:
        now += gap
        used_at.append(now + bucket.reserve(now))
    assert used_at == sorted(used_at)
    for first, begin in enumerate(used_at):
        for last in range(first, len(used_at)):
            assert last - first + 1 <= burst + 5.0 * (used_at[last] - begin) + 1e-6


def test_the_longest_delay_counts_and_every_limiter_counts_every_attempt():
    bucket = TokenBucket(rate_per_s=1.0, burst=2)
    limiter: MaxOf[str] = MaxOf(ItemBackoff(initial_s=0.25), bucket)
    assert limiter.delay("a", now=0.0) == 0.25
    assert limiter.delay("b", now=0.0) == 0.25
    assert limiter.delay("c", now=0.0) == 1.0
    assert limiter.retries("a") == 1


def test_the_default_limiter_is_that_of_client_go():
    limiter = default_rate_limiter()
    assert [limiter.delay(number, now=0.0) for number in range(100)] == [0.005] * 100
    assert limiter.delay("one more", now=0.0) == pytest.approx(0.1)
    assert limiter.delay("and one", now=0.0) == pytest.approx(0.2)


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
