from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.events.correlator import (
    BURST,
    DISTINCT,
    MESSAGE_LIMIT,
    REFILL,
    WINDOW,
    Correlator,
    ObjectRef,
    Occasions,
    Series,
    SpamFilter,
    truncate,
)
from tests.controller.events.recorder_setup import START, ref

SECOND = timedelta(seconds=1)


def record(
    correlator: Correlator,
    message: str,
    at: datetime = START,
    *,
    about: ObjectRef | None = None,
    component: str = "replicaset-controller",
    reason: str = "SuccessfulCreate",
    warning: bool = False,
) -> Series:
    return correlator.record(
        about or ref(), component=component, reason=reason, message=message, warning=warning, at=at
    )


@pytest.mark.parametrize(
    "difference",
    [
        {"about": ref("other")},
        {"about": replace(ref(), uid="another-uid")},
        {"component": "pool-controller"},
        {"reason": "SuccessfulDelete"},
        {"warning": True},
        {"message": "created b"},
    ],
    ids=lambda difference: next(iter(difference)),
)
def test_any_difference_makes_another_event(difference: dict[str, object]):
    correlator = Correlator()
    first = record(correlator, "created a")
    other = record(correlator, **{"message": "created a", **difference})  # type: ignore[arg-type]
    assert other is not first
    assert (first.count, other.count) == (1, 1)


def test_a_repeat_after_more_than_ten_minutes_is_a_new_event():
    correlator = Correlator()
    first = record(correlator, "a")
    assert record(correlator, "a", START + WINDOW) is first
    later = record(correlator, "a", START + 2 * WINDOW + SECOND)
    assert later is not first
    assert later.count == 1


def test_similar_events_are_separate_again_after_ten_minutes():
    correlator = Correlator()
    for n in range(20):
        record(correlator, f"created {n}")
    later = record(correlator, "created late", START + WINDOW + SECOND)
    assert not later.combined


def test_the_event_name_for_a_long_object_name_is_cut_and_stays_a_dns_name():
    name = "a" * 235 + "." + "b" * 17
    event = record(Correlator(), "a", about=ref(name)).name
    assert len(event) <= 253
    assert event.startswith("a" * 235 + ".1")


occurrences = st.lists(
    st.tuples(st.integers(0, 14), st.sampled_from(["SuccessfulCreate", "FailedCreate"]), st.integers(0, 700)),
    max_size=80,
)


@given(occurrences)
def test_every_occurrence_is_counted_once_and_at_most_ten_similar_events_are_separate(
    history: list[tuple[int, str, int]],
):
    correlator = Correlator()
    now = START
    recorded: list[Series] = []
    for number, reason, gap in history:
        now += gap * SECOND
        recorded.append(record(correlator, f"message {number}", now, reason=reason))
        recent = {s for s in recorded if s.reason == reason and not s.combined and now - s.last <= WINDOW}
        assert len(recent) <= DISTINCT
        assert recorded[-1].message == f"message {number}"
    assert sum(series.count for series in set(recorded)) == len(history)
    assert all(series.count == recorded.count(series) for series in set(recorded))


def test_an_object_may_send_a_burst_and_then_one_request_in_five_minutes():
    spam_filter = SpamFilter()
    assert [spam_filter.admit(ref(), "c", START) for _ in range(BURST + 5)] == [True] * BURST + [False] * 5
    assert not spam_filter.admit(ref(), "c", START + REFILL - SECOND)
    assert spam_filter.admit(ref(), "c", START + REFILL)
    assert not spam_filter.admit(ref(), "c", START + REFILL)


def test_the_number_of_groups_and_of_buckets_is_bounded():
    correlator, spam_filter = Correlator(capacity=50), SpamFilter(capacity=50)
    for n in range(1000):
        record(correlator, "a", about=ref(f"web-{n}"))
        spam_filter.admit(ref(f"web-{n}"), "c", START)
    assert len(correlator) == len(spam_filter) == 50


def test_the_least_recently_used_occasion_is_removed_first():
    occasions = Occasions(capacity=2)
    occasions.mark_reported("a")
    occasions.mark_reported("b")
    assert occasions.is_reported("a")
    occasions.mark_reported("c")
    assert [name for name in "abc" if occasions.is_reported(name)] == ["a", "c"]


@given(st.text(max_size=3000) | st.text(alphabet="aß語🙂", min_size=1025, max_size=2000))
def test_a_message_that_is_too_long_for_an_event_is_cut_between_two_characters(message: str):
    truncated = truncate(message)
    if len(message.encode()) <= MESSAGE_LIMIT:
        assert truncated == message
        return
    assert truncated.endswith("...")
    assert message.startswith(truncated.removesuffix("..."))
    assert MESSAGE_LIMIT - 4 < len(truncated.encode()) <= MESSAGE_LIMIT


def test_characters_that_utf_8_cannot_encode_are_replaced():
    assert truncate("broken \udc80 name") == "broken ? name"


def test_a_combined_message_fits_with_its_prefix():
    correlator = Correlator()
    for n in range(20):
        combined = record(correlator, f"{n}" + "x" * 2000)
    assert combined.combined
    assert len(combined.text) == MESSAGE_LIMIT
