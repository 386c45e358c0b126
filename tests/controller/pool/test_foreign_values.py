"""P30: VMs and VMIs may have any value, because every user of the namespace can write it. No value stops a plan."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.conditions import EARLIEST, LATEST, with_timezone
from controller.apimachinery.quantities import seconds
from controller.kubevirt.annotations import BUSY_UNTIL, DRAIN_SECONDS, DRAINING, HEALED, SUBSTITUTE_LOST_AFTER, UNREADY
from controller.kubevirt.resources import VMIS
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.replicaset import plan as set_plan
from controller.replicaset import status as set_status
from tests import builders
from tests.pool_builders import pool, snapshot, vm, vm_spec, vmi

ENDS = ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z")
TIMES = st.sampled_from([*ENDS, "2026-01-01T00:00:00Z"])
INTEGERS = st.one_of(st.sampled_from([0, -1, 250_000_000_000, 2**63 - 1, -(2**63)]), st.integers())
SECONDS = {SUBSTITUTE_LOST_AFTER: "2147483647", DRAIN_SECONDS: "2147483647"}


@given(INTEGERS)
def test_any_number_of_seconds_is_a_duration_that_a_plan_can_add_to_any_time(number: int) -> None:
    assert timedelta() <= seconds(number) <= timedelta(days=36525)
    assert EARLIEST + seconds(number) < LATEST <= LATEST + seconds(number)


@given(st.datetimes(timezones=st.none() | st.just(UTC)))
def test_a_time_of_an_object_is_between_the_years_1000_and_9000(time: datetime) -> None:
    found = with_timezone(time)
    assert found is not None
    assert found.astimezone(UTC) + timedelta(days=36525) > found
    if 1000 <= time.year < 9000:
        assert found == time.replace(tzinfo=UTC)
    else:
        assert found in (EARLIEST, LATEST)


@pytest.mark.parametrize("grace_s", [250_000_000_000, 2**63 - 1, -5])
def test_p28_a_long_grace_period_only_delays_the_substitute(grace_s: int) -> None:
    spec = vm_spec()
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = grace_s
    owner = pool(spec=spec, annotations={SUBSTITUTE_LOST_AFTER: "60"})
    lost, others = vm("web-0", owner=owner, spec=spec), [vm(f"web-{n}", owner=owner, spec=spec) for n in (1, 2)]
    terminating = vmi(lost, ready=False, reason="PodTerminating", ready_for_s=100)
    seen = snapshot(owner, [lost, *others], vmis=[terminating, *map(vmi, others)])
    assert plan(seen).requeue_after_s is not None
    assert next_status(seen, ()).replicas == 3


@given(st.lists(TIMES, min_size=4, max_size=4), INTEGERS.filter(lambda each: abs(each) < 2**63), st.booleans())
def test_no_time_and_no_number_of_a_vm_or_vmi_stops_the_plan_of_a_pool(
    times: list[str], number: int, terminating: bool
) -> None:
    spec = vm_spec()
    spec["template"]["spec"]["terminationGracePeriodSeconds"] = number
    notes = {HEALED: f'{{"0":["uid-web-0",1,"{times[0]}"]}}', UNREADY: f'{{"0":["u","{times[1]}"]}}'}
    owner = pool(spec=vm_spec(image="v2"), generation=2, annotations={**SECONDS, **notes})
    marks = {BUSY_UNTIL: times[2], DRAINING: f"update until {times[3][:19]}Z of uid-web-0"}
    member = vm("web-0", owner=owner, spec=spec, revision="web-1", annotations=marks)
    instance = with_times(vmi(member, ready=False, reason="PodTerminating" if terminating else None), times)
    seen = snapshot(owner, [member], vmis=[VMIS.decode(instance)])
    plan(seen)
    next_status(seen, ())


@given(st.lists(TIMES, min_size=4, max_size=4), st.sampled_from(["Running", "Failed", "Succeeded", "Pending"]))
def test_no_time_of_a_vmi_stops_the_plan_of_a_set(times: list[str], phase: str) -> None:
    owner = builders.replicaset(annotations=SECONDS)
    notes = {"vmherd.dev/early-failures": f'{{"failures":3,"since":"{times[0]}","at":"{times[1]}"}}'}
    members = [builders.vmi(f"vmi-{n}", owner=owner, phase=phase, annotations=notes) for n in range(2)]
    seen = builders.snapshot(owner, [VMIS.decode(with_times(each, times)) for each in members])
    set_plan.plan(seen)
    set_status.next_status(seen, ())


def with_times(instance: Any, times: list[str]) -> bytes:
    document = msgspec.json.decode(msgspec.json.encode(instance))
    document["metadata"]["creationTimestamp"] = times[2]
    status = document.setdefault("status", {})
    for condition in status.get("conditions") or []:
        condition["lastTransitionTime"] = times[0]
    status["phaseTransitionTimestamps"] = [
        {"phase": phase, "phaseTransitionTimestamp": times[1]} for phase in ("Running", "Failed", "Succeeded")
    ]
    return msgspec.json.encode(document)
