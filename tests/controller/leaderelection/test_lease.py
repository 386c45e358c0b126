import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.leaderelection.lease import (
    SECOND_WRITER,
    SETTINGS,
    Lease,
    LeaseSpec,
    Observed,
    change_body,
    claim,
    may_write,
    observe,
)
from informers.meta import ObjectMeta

NOON = datetime(2026, 11, 21, 12, 0, 0, 250, tzinfo=UTC)


def lease(holder: str = "other", *, version: int = 1, duration_s: int | None = 15, **spec: object) -> Lease:
    return Lease(
        metadata=ObjectMeta(name="vmherd", namespace="here", uid="u1", resource_version=str(version)),
        spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=duration_s, **spec),
    )


def seen(*history: tuple[float, Lease | None]) -> Observed:
    """The knowledge of a process after these leases were read. Each lease was read at the given time."""
    observed = None
    for now, record in history:
        observed = observe(observed, record, now=now, usual_duration_s=20.0)
    assert observed is not None
    return observed


def decision(observed: Observed, now: float) -> Lease | float | None:
    """The lease that a candidate writes, or None if it creates the lease, or else the end of its wait."""
    return observed.lease if may_write(observed, identity="me", now=now) else observed.held_until


OLD, NEW = lease(version=1), lease(version=2)
MINE, FREE = lease("me"), lease("")

DECISIONS = {
    "the lease never existed": (seen((0, None)), 0, None),
    "it was released": (seen((0, FREE)), 0, FREE),
    "a record without a spec is free": (seen((0, Lease())), 0, Lease()),
    "another process holds it": (seen((100, OLD)), 100, 115),
    "another process holds it, shortly before it expires": (seen((100, OLD)), 114.9, 115),
    "its holder did not renew it for its duration": (seen((100, OLD)), 115, OLD),
    "reading the same record again is no sign of life": (seen((100, OLD), (114, OLD)), 115, OLD),
    "a change is a sign of life": (seen((100, OLD), (114, NEW)), 115, 129),
    "a record without a duration gets the usual duration": (seen((0, lease(duration_s=None))), 5, 20),
    "the duration in the record counts": (seen((0, lease(duration_s=60))), 30, 60),
    "it is ours": (seen((0, MINE)), 1, MINE),
    "it is ours and was not renewed for long, but no other process took it": (seen((0, MINE)), 1000, MINE),
    "our lease was deleted": (seen((0, MINE), (1, None)), 1, None),
    "the lease of another process was deleted, and that process may still work": (
        seen((100, OLD), (105, None)),
        105,
        115,
    ),
    "the lease of another process was deleted and not created again in time": (
        seen((100, OLD), (105, None), (114, None)),
        115,
        None,
    ),
    "a released lease was deleted": (seen((100, FREE), (105, None)), 105, None),
    "it was deleted and created again by another process": (seen((100, OLD), (105, None), (106, NEW)), 107, 121),
}


@pytest.mark.parametrize(("observed", "now", "expected"), DECISIONS.values(), ids=DECISIONS)
def test_the_decision_of_a_candidate(observed, now, expected):
    assert decision(observed, now) == expected


@pytest.mark.parametrize("when", ["1970-01-01T00:00:00.000000Z", "2970-01-01T00:00:00.000000Z", "nonsense"])
def test_timestamps_in_the_record_do_not_affect_the_decision(when):
    record = lease(renew_time=when, acquire_time=when)
    assert decision(seen((100, record)), 114.9) == 115
    assert decision(seen((100, record)), 115) == record


@given(
    reads=st.lists(
        st.tuples(
            st.floats(0, 20),
            st.one_of(st.none(), st.builds(lease, st.sampled_from(["other", "third", ""]), version=st.integers(1, 3))),
        ),
        min_size=1,
    ),
    after=st.floats(0, 40),
)
def test_a_candidate_waits_for_exactly_one_duration_after_the_last_change_of_a_held_lease(reads, after):
    observed, now, last_change, before = None, 0.0, 0.0, None
    for gap, record in reads:
        now += gap
        observed = observe(observed, record, now=now, usual_duration_s=15.0)
        if record is not None:
            version = record.metadata.resource_version
            last_change, before = (last_change if version == before else now), version
        else:
            before = None
    assert observed is not None
    if observed.holder and observed.lease and now + after < last_change + 15:
        assert not may_write(observed, identity="me", now=now + after)
    if after >= 15:
        assert may_write(observed, identity="me", now=now + after)


def test_a_takeover_increments_the_transitions():
    taken = claim(lease("other", lease_transitions=6), identity="me", duration_s=15.0, now=NOON)
    assert (taken.holder_identity, taken.lease_transitions) == ("me", 7)
    assert taken.acquire_time == taken.renew_time


def test_a_fraction_of_a_second_is_rounded_up_so_that_standbys_wait_longer():
    assert claim(None, identity="me", duration_s=2.5, now=NOON).lease_duration_seconds == 3


def test_a_patch_has_the_uid_the_version_and_only_the_fields_that_it_sets():
    assert json.loads(change_body(lease(version=7), LeaseSpec(holder_identity=""))) == {
        "metadata": {"uid": "u1", "resourceVersion": "7"},
        "spec": {"holderIdentity": ""},
    }


def test_a_patch_has_only_the_notes_that_change():
    patch = json.loads(change_body(lease(version=7), LeaseSpec(), {SETTINGS: "{}", SECOND_WRITER: ""}))
    assert patch["metadata"]["annotations"] == {SETTINGS: "{}"}
    known = structs.replace(lease(version=7), metadata=ObjectMeta(annotations={SETTINGS: "{}"}))
    assert "annotations" not in json.loads(change_body(known, LeaseSpec(), {SETTINGS: "{}"}))["metadata"]
