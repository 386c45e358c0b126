from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    fit,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def ref(name: str = "web", *, uid: str = "", version: str = "1") -> ObjectRef:
    return ObjectRef(
        api_version="kubevirt.io/v1",
        kind="VirtualMachineInstanceReplicaSet",
        namespace="default",
        name=name,
        uid=uid or f"uid-of-{name}",
        resource_version=version,
    )


def tell(
    correlator: Correlator,
    message: str,
    at: datetime = START,
    *,
    about: ObjectRef | None = None,
    component: str = "replicaset-controller",
    reason: str = "SuccessfulCreate",
    warning: bool = False,
) -> Series:
    return correlator.tell(about or ref(), component=component, reason=reason, message=message, warning=warning, at=at)


def test_a_repeat_raises_the_count_of_the_same_event():
    correlator = Correlator()
    first = tell(correlator, "created a")
    again = tell(correlator, "created a", START + 5 * SECOND)
    assert again is first
    assert (again.count, again.first, again.last) == (2, START, START + 5 * SECOND)


def test_another_version_of_the_object_is_the_same_object():
    correlator = Correlator()
    assert tell(correlator, "a", about=ref(version="1")) is tell(correlator, "a", about=ref(version="2"))


@pytest.mark.parametrize(
    "difference",
    [
        {"about": ref("other")},
        {"about": ref(uid="made anew")},
        {"component": "pool-controller"},
        {"reason": "SuccessfulDelete"},
        {"warning": True},
        {"message": "created b"},
    ],
    ids=lambda difference: next(iter(difference)),
)
def test_what_differs_in_anything_is_another_event(difference: dict[str, object]):
    correlator = Correlator()
    first = tell(correlator, "created a")
    other = tell(correlator, **{"message": "created a", **difference})  # type: ignore[arg-type]
    assert other is not first
    assert (first.count, other.count) == (1, 1)


def test_after_ten_quiet_minutes_a_repeat_is_a_new_event():
    correlator = Correlator()
    first = tell(correlator, "a")
    assert tell(correlator, "a", START + WINDOW) is first
    later = tell(correlator, "a", START + 2 * WINDOW + SECOND)
    assert later is not first
    assert later.count == 1


def test_a_repeat_every_nine_minutes_stays_one_event():
    correlator = Correlator()
    all_told = {tell(correlator, "a", START + n * timedelta(minutes=9)) for n in range(20)}
    assert [series.count for series in all_told] == [20]


def test_ten_similar_events_stand_alone_and_the_rest_is_combined():
    correlator = Correlator()
    told = [tell(correlator, f"created {n}") for n in range(1000)]
    assert len(set(told)) == DISTINCT + 1
    assert not any(series.combined for series in told[:DISTINCT])
    combined = told[-1]
    assert set(told[DISTINCT:]) == {combined}
    assert combined.count == 990
    assert combined.text == "(combined from similar events): created 999"


def test_one_of_the_ten_is_still_counted_by_itself_when_it_repeats():
    correlator = Correlator()
    told = [tell(correlator, f"created {n}") for n in range(20)]
    again = tell(correlator, "created 3")
    assert again is told[3]
    assert again.count == 2


def test_similar_events_stand_alone_again_when_the_flood_is_over():
    correlator = Correlator()
    for n in range(20):
        tell(correlator, f"created {n}")
    later = tell(correlator, "created late", START + WINDOW + SECOND)
    assert not later.combined


def test_a_slow_trickle_of_similar_events_is_never_combined():
    """Ten in ten minutes are allowed, whatever came before them."""
    correlator = Correlator()
    told = [tell(correlator, f"created {n}", START + n * timedelta(seconds=61)) for n in range(100)]
    assert not any(series.combined for series in told)


def test_names_are_the_objects_name_and_a_stamp_and_never_the_same_twice():
    correlator = Correlator()
    names = [tell(correlator, "a", reason=f"Reason{n}").name for n in range(100)]
    assert len(set(names)) == 100
    assert all(name.startswith("web.") for name in names)
    stamp = int(names[0].removeprefix("web."), 16)
    assert datetime.fromtimestamp(stamp / 1e9, UTC) == START


def test_the_name_of_an_object_with_a_long_name_is_cut_and_stays_a_dns_name():
    name = "a" * 235 + "." + "b" * 17
    event = tell(Correlator(), "a", about=ref(name)).name
    assert len(event) <= 253
    assert event.startswith("a" * 235 + ".1")


def test_a_clock_that_goes_back_makes_no_new_event_and_no_equal_name():
    correlator = Correlator()
    first = tell(correlator, "a")
    assert tell(correlator, "a", START - 3600 * SECOND) is first
    assert tell(correlator, "b", START - 3600 * SECOND).name != first.name


def test_what_is_remembered_is_bounded():
    correlator = Correlator(remembered=50)
    for n in range(1000):
        tell(correlator, "a", about=ref(f"web-{n}"))
    assert len(correlator) == 50


def test_what_is_old_is_forgotten_when_something_new_happens():
    correlator = Correlator()
    for n in range(100):
        tell(correlator, "a", about=ref(f"web-{n}"))
    tell(correlator, "a", START + WINDOW + SECOND, about=ref("late"))
    assert len(correlator) == 1


occurrences = st.lists(
    st.tuples(st.integers(0, 14), st.sampled_from(["SuccessfulCreate", "FailedCreate"]), st.integers(0, 700)),
    max_size=80,
)


@given(occurrences)
def test_every_occurrence_is_counted_once_and_no_more_than_ten_similar_ones_stand_alone(
    history: list[tuple[int, str, int]],
):
    correlator = Correlator()
    now = START
    told: list[Series] = []
    for number, reason, gap in history:
        now += gap * SECOND
        told.append(tell(correlator, f"message {number}", now, reason=reason))
        recent = {s for s in told if s.reason == reason and not s.combined and now - s.last <= WINDOW}
        assert len(recent) <= DISTINCT
        assert told[-1].message == f"message {number}"
    assert sum(series.count for series in set(told)) == len(history)
    assert all(series.count == told.count(series) for series in set(told))


def test_an_object_may_send_a_burst_and_then_one_request_in_five_minutes():
    spam_filter = SpamFilter()
    assert [spam_filter.admit(ref(), "c", START) for _ in range(BURST + 5)] == [True] * BURST + [False] * 5
    assert not spam_filter.admit(ref(), "c", START + REFILL - SECOND)
    assert spam_filter.admit(ref(), "c", START + REFILL)
    assert not spam_filter.admit(ref(), "c", START + REFILL)


def test_a_bucket_never_holds_more_than_the_burst():
    spam_filter = SpamFilter()
    spam_filter.admit(ref(), "c", START)
    much_later = START + 1000 * REFILL
    assert sum(spam_filter.admit(ref(), "c", much_later) for _ in range(100)) == BURST


def test_one_object_that_talks_too_much_silences_no_other():
    spam_filter = SpamFilter()
    for _ in range(100):
        spam_filter.admit(ref("loud"), "c", START)
    assert spam_filter.admit(ref("quiet"), "c", START)
    assert spam_filter.admit(ref("loud"), "another component", START)


def test_a_clock_that_goes_back_takes_nothing_out_of_a_bucket():
    spam_filter = SpamFilter()
    assert [spam_filter.admit(ref(), "c", START - n * 3600 * SECOND) for n in range(BURST)] == [True] * BURST


def test_buckets_are_bounded():
    spam_filter = SpamFilter(remembered=50)
    for n in range(1000):
        spam_filter.admit(ref(f"web-{n}"), "c", START)
    assert len(spam_filter) == 50


def test_an_occasion_is_told_once_it_was_remembered():
    occasions = Occasions()
    assert not occasions.told("a")
    occasions.remember("a")
    assert occasions.told("a")
    assert not occasions.told("b")


def test_the_occasion_that_was_asked_about_longest_ago_is_forgotten_first():
    occasions = Occasions(remembered=2)
    occasions.remember("a")
    occasions.remember("b")
    assert occasions.told("a")
    occasions.remember("c")
    assert [name for name in "abc" if occasions.told(name)] == ["a", "c"]


@given(st.text(max_size=3000))
def test_a_message_fits_into_an_event_whatever_it_is(message: str):
    fitted = fit(message)
    assert len(fitted.encode()) <= MESSAGE_LIMIT
    kept = fitted.removesuffix("...")
    assert message.startswith(kept) or fitted == message


@given(st.text(alphabet="aß語🙂", min_size=1025, max_size=2000))
def test_a_message_that_is_too_long_is_cut_at_the_end_of_a_character(message: str):
    fitted = fit(message)
    assert fitted.endswith("...")
    assert message.startswith(fitted.removesuffix("..."))
    assert MESSAGE_LIMIT - 4 < len(fitted.encode()) <= MESSAGE_LIMIT


def test_what_utf_8_cannot_express_is_replaced():
    assert fit("broken \udc80 name") == "broken ? name"


def test_a_combined_message_fits_with_its_prefix():
    correlator = Correlator()
    for n in range(20):
        combined = tell(correlator, f"{n}" + "x" * 2000)
    assert combined.combined
    assert len(combined.text) == MESSAGE_LIMIT
