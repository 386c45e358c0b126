"""The life of a simulated VMI, patch by patch, on the fake API server and in virtual time."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.behavior import next_step
from sandbox.settings import BEHAVIOR, BEHAVIORS, READY_AFTER, SHUTDOWN_AFTER, read_settings
from sandbox.step import Step
from sandbox.vmi_status import detail_patch, pod_uid
from sandbox.vmis import CONTROLLER_FINALIZER, FINALIZER, NODES, VMIState, address_for, node_for
from tests.sandbox.lives import FINAL, WAY_UP, Life, behaving
from tests.sandbox.machines import CREATED

READY = VMIState("Running")
BOOTING = VMIState("Running", "GuestNotRunning")
UNREADY = VMIState("Running", "ContainersNotReady")
CRASHED = VMIState("Failed")
FAILED = VMIState("Failed", "PodTerminating")
FINISHED = VMIState("Succeeded")
SUCCEEDED = VMIState("Succeeded", "PodTerminating")
PULLING = VMIState("Scheduling", "GuestNotRunning", "ErrImagePull")
BACKING_OFF = VMIState("Scheduling", "GuestNotRunning", "ImagePullBackOff")
BOOT = [
    (0.0, VMIState("Pending", "VMIConditionMissing")),
    (0.5, VMIState("Scheduling", "GuestNotRunning")),
    (1.0, VMIState("Scheduled", "GuestNotRunning")),
    (1.5, BOOTING),
]


@pytest.mark.parametrize(
    ("behavior", "ready_after", "seen"),
    [
        *((behavior, "2s", [*BOOT, (2.0, READY)]) for behavior in ("normal", "slow-shutdown", "datavolume-error")),
        ("never-ready", "2s", [*BOOT, (2.0, UNREADY)]),
        ("crash-loop", "2s", [*BOOT, (2.0, READY), (3.0, CRASHED), (3.0, FAILED)]),
        ("finish", "2s", [*BOOT, (2.0, READY), (3.0, FINISHED), (3.0, SUCCEEDED)]),
        ("unknown", "2s", [*BOOT, (2.0, READY), (3.0, VMIState("Unknown", "GuestNotRunning"))]),
        ("fail", "2s", [*BOOT[:2], (1.5, FAILED)]),
        ("image-error", "2s", [*BOOT[:2], (1.0, PULLING), (3.0, BACKING_OFF)]),
        ("unschedulable", "2s", [BOOT[0], (0.5, VMIState("Scheduling", "GuestNotRunning", "Unschedulable"))]),
        ("pvc-missing", "2s", [(0.0, VMIState("Pending", "PodNotExists", "FailedPvcNotFound"))]),
        # A short boot shows only lasting phases.
        ("crash-loop", "300ms", [(0.3, READY), (1.3, CRASHED), (1.3, FAILED)]),
        ("finish", "300ms", [(0.3, READY), (1.3, FINISHED), (1.3, SUCCEEDED)]),
        ("never-ready", "300ms", [(0.3, UNREADY)]),
        ("fail", "300ms", [(0.225, FAILED)]),
    ],
)
def test_a_vmi_follows_its_behavior(behavior: str, ready_after: str, seen: list[tuple[float, VMIState]]) -> None:
    assert behaving(behavior, ready_after).live(3600).seen == seen


@pytest.mark.parametrize("trouble", ["", "FailedPvcNotFound"])
def test_a_vmi_waits_while_there_is_an_obstacle_and_then_continues(trouble: str) -> None:
    life = Life()
    waiting = next_step(life.vmi, life.now, CREATED, trouble).write
    assert waiting is not None
    life.take(waiting)
    assert life.seen == [(0.0, VMIState("Pending", "PodNotExists", trouble))]
    assert next_step(life.vmi, life.now, CREATED, trouble) == Step()
    assert life.live(3600).seen[1:] == [(0.3, READY)]
    assert next_step(life.vmi, life.now, CREATED, trouble) == Step()


@pytest.mark.parametrize("ready_after", ["300ms", "2s"])
def test_the_history_has_all_phases_including_skipped_phases(ready_after: str) -> None:
    history = behaving("normal", ready_after).live(10).document["status"]["phaseTransitionTimestamps"]
    assert [entry["phase"] for entry in history] == WAY_UP[1:]
    times = [datetime.fromisoformat(entry["phaseTransitionTimestamp"]) for entry in history]
    assert times == sorted(times)
    assert times[0] == CREATED


def test_a_late_simulator_sets_the_present_state_directly() -> None:
    life = behaving("normal", "10s").sleep(6).live(0.001)
    assert life.phases == ["Scheduled"]
    assert life.sleep(60).live(0.001).phases == ["Scheduled", "Running"]
    assert life.seen[-1][1] == READY


def test_a_vmi_that_boots_keeps_its_times_over_a_restart_of_the_simulator() -> None:
    life = behaving("normal", "8s").live(1).sleep(2.5).live(3600)
    assert life.seen == [(0.0, BOOT[0][1]), (3.5, BOOT[1][1]), (4.0, BOOT[2][1]), (6.0, BOOTING), (8.0, READY)]


def test_after_a_restart_a_new_vmi_becomes_ready_at_most_a_second_late() -> None:
    [(at, look)] = behaving("normal", "900ms").sleep(0.2).live(3600).seen
    assert look == READY
    assert 0.9 <= at <= 1.9


def test_a_deleted_vmi_of_a_vm_stays_until_the_vm_controller_has_removed_its_finalizer() -> None:
    life = Life().live(10).set_finalizers(CONTROLLER_FINALIZER, FINALIZER).delete()
    life.live(60, vm_exists=True)
    assert life.finalizers == [CONTROLLER_FINALIZER]
    assert life.live(1).gone_at == 70, "the VM has gone"


@pytest.mark.parametrize(
    ("annotations", "grace_s", "takes_s"),
    [
        ({BEHAVIOR: "slow-shutdown"}, None, 30),
        ({BEHAVIOR: "slow-shutdown"}, 0, 30),
        ({BEHAVIOR: "slow-shutdown"}, 60, 30),
        ({BEHAVIOR: "slow-shutdown"}, 5, 5),
        ({BEHAVIOR: "slow-shutdown", SHUTDOWN_AFTER: "2s"}, 60, 2),
        ({SHUTDOWN_AFTER: "1m30s"}, None, 90),
    ],
)
def test_a_slow_vmi_shuts_down_for_its_time_and_is_gone(
    annotations: dict[str, str], grace_s: int | None, takes_s: float
) -> None:
    life = Life(annotations, grace_s=grace_s).live(10)
    assert life.finalizers == [FINALIZER]
    life.delete().live(takes_s - 0.1)
    assert life.seen[-1] == (10.0, VMIState("Running", "PodTerminating"))
    assert life.gone_at is None
    life.live(3600)
    assert life.gone_at == pytest.approx(10 + takes_s, abs=0.01)


SLOWLY = {SHUTDOWN_AFTER: "20s"}


@pytest.mark.parametrize(
    ("deleted", "gone_at"),
    [
        (lambda: Life(grace_s=30).live(10), 10),
        (lambda: behaving("image-error", **SLOWLY).live(600), 600),  # it is not scheduled
        (lambda: behaving("never-ready", **SLOWLY).live(600), 620),
        (lambda: behaving("unknown", **SLOWLY).live(600), 620),
        (lambda: behaving("paused", **SLOWLY).live(600), 620),
        *((lambda each=each: behaving(each, **SLOWLY).live(10), 10) for each in ("finish", "fail", "crash-loop")),
        (lambda: Life().live(10).annotate(behavior="slow-shutdown").live(1), 41),
    ],
)
def test_a_deleted_vmi_is_gone_when_its_guest_has_shut_down(deleted: Callable[[], Life], gone_at: float) -> None:
    life = deleted()
    assert life.finalizers == [FINALIZER]
    assert life.delete().gone_at is None
    assert life.live(3600).gone_at == pytest.approx(gone_at, abs=0.01)


def test_a_shutdown_continues_after_a_restart_and_ends_at_once_if_the_annotation_is_removed() -> None:
    going, hurried = (behaving("slow-shutdown").live(10).delete() for _ in range(2))
    assert going.live(5).sleep(10).live(3600).gone_at == pytest.approx(40, abs=0.01)
    assert hurried.live(1).annotate(behavior=None).live(1).gone_at == 11


@pytest.mark.parametrize(("behavior", "ends_at"), [("slow-shutdown", 40.0), ("normal", 10.0)])
def test_foreign_finalizers_stay_and_the_vmi_still_ends(behavior: str, ends_at: float) -> None:
    life = behaving(behavior).set_finalizers("example.org/a", "example.org/b").live(10)
    assert life.finalizers == ["example.org/a", "example.org/b", FINALIZER]
    assert life.delete().live(3600).finalizers == ["example.org/a", "example.org/b"]
    assert life.seen[-1] == (ends_at, VMIState("Succeeded", "PodTerminating"))


def test_a_patch_of_finalizers_applies_only_to_the_version_that_was_read() -> None:
    life = behaving("slow-shutdown").live(10)
    assert ["resourceVersion" in patch["metadata"] for patch in life.patches] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("behavior", "look"),
    [
        ("never-ready", UNREADY),
        ("unknown", VMIState("Unknown", "GuestNotRunning")),
        ("fail", FAILED),
        ("crash-loop", FAILED),
        ("finish", SUCCEEDED),
    ],
)
def test_an_annotation_breaks_a_running_vmi_now(behavior: str, look: VMIState) -> None:
    life = behaving("normal").live(600).annotate(behavior=behavior).live(10)
    assert life.seen[-1] == (600.0, look)
    transition = life.document["status"]["conditions"][0]["lastTransitionTime"]
    assert datetime.fromisoformat(transition) == CREATED + timedelta(seconds=600)


@pytest.mark.parametrize(
    ("behavior", "change", "look"),
    [
        ("never-ready", {"behavior": None}, READY),
        ("unknown", {"behavior": None}, READY),
        # A VMI that has ended stays as it is, and a running VMI does not boot again.
        *((each, {"behavior": None, "ready_after": "1ms"}, None) for each in ("finish", "fail", "crash-loop")),
        ("normal", {"ready_after": "1h"}, None),
        ("normal", {"behavior": "image-error"}, None),
    ],
)
def test_a_vmi_that_is_no_longer_broken_recovers_and_never_boots_again(
    behavior: str, change: dict[str, str | None], look: VMIState | None
) -> None:
    life = behaving(behavior).live(600)
    seen = list(life.seen)
    assert life.annotate(**change).live(600).seen == (seen if look is None else [*seen, (600.0, look)])


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (BEHAVIOR, "sleepy"),
        (BEHAVIOR, ""),
        (READY_AFTER, "soon"),
        (READY_AFTER, "-2s"),
        (READY_AFTER, "999999999999h"),
        (SHUTDOWN_AFTER, "1 s"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_and_counts_as_the_default(annotation: str, text: str) -> None:
    life = Life({annotation: text})
    [warning] = read_settings({annotation: text}).warnings
    assert annotation in warning
    assert f'"{text}"' in warning
    assert life.live(3600).seen == [(0.3, READY)]


def test_a_condition_gets_a_new_time_with_a_new_reason_and_keeps_the_time_with_the_same_reason() -> None:
    life = behaving("never-ready").live(1.9)
    assert life.phases[-1] == "Running"
    assert time_of_ready(life) == CREATED + timedelta(seconds=0.5), "GuestNotRunning since phase Scheduling"
    life.live(60)
    assert time_of_ready(life) == CREATED + timedelta(seconds=2), "ContainersNotReady"


def test_a_vmi_is_ready_with_the_time_at_which_its_pod_was_ready() -> None:
    life = behaving("normal").live(60)
    assert time_of_ready(life) == CREATED + timedelta(seconds=1), "the phase Scheduled"


def time_of_ready(life: Life) -> datetime:
    """The last transition time of the condition Ready, in whole milliseconds."""
    at = datetime.fromisoformat(life.document["status"]["conditions"][0]["lastTransitionTime"])
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def test_a_vmi_that_was_migrated_stays_on_its_node() -> None:
    life = behaving("normal", **{SHUTDOWN_AFTER: "5s"}).live(10)
    life.change({"status": {"nodeName": "elsewhere"}, "metadata": {"labels": {"kubevirt.io/nodeName": "elsewhere"}}})
    life.delete().live(1)
    assert life.seen[-1][1] == VMIState("Running", "PodTerminating")
    assert life.document["metadata"]["labels"]["kubevirt.io/nodeName"] == "elsewhere"
    assert life.document["status"]["nodeName"] == "elsewhere"


def test_nodes_are_spread_evenly_and_addresses_are_addresses() -> None:
    vmis = [Life(uid=f"uid-{number}").vmi for number in range(1000)]
    per_node = [sum(node_for(vmi) == node for vmi in vmis) for node in NODES]
    assert min(per_node) > 100
    for vmi in vmis:
        octets = [int(part) for part in address_for(vmi).split(".")]
        assert octets[0] == 10
        assert all(0 <= octet <= 255 for octet in octets)
        assert 1 <= octets[3] <= 254


durations = st.sampled_from([None, "0s", "100ms", "1s", "3s", "1m", "nonsense"])
events = st.one_of(
    st.tuples(st.just("live"), st.floats(0, 20)),
    st.tuples(st.just("sleep"), st.floats(0, 20)),
    st.tuples(st.just("behavior"), st.sampled_from([None, "nonsense", *BEHAVIORS])),
    st.tuples(st.just("ready_after"), durations),
    st.tuples(st.just("shutdown_after"), durations),
)


@given(st.lists(events, max_size=8), st.booleans())
def test_after_any_changes_a_vmi_has_booted_at_most_once_and_can_be_deleted(
    story: list[tuple[str, Any]], foreign: bool
) -> None:
    life = Life()
    if foreign:
        life.set_finalizers("example.org/other")
    for event, value in story:
        match event:
            case "live":
                life.live(value)
            case "sleep":
                life.sleep(value)
            case _:
                life.annotate(**{event: value})
    heights = [min(WAY_UP.index(phase) if phase in WAY_UP else 4, 4) for phase in life.phases]
    assert heights == sorted(heights)
    final = [phase for phase in life.phases if phase in FINAL]
    assert final == life.phases[len(life.phases) - len(final) :]
    assert len(set(final)) <= 1
    life.delete().live(7200)
    assert life.finalizers == (["example.org/other"] if foreign else [])
    assert (life.gone_at is None) == foreign


def test_only_a_vmi_without_a_pod_gets_an_active_pod_with_a_derived_uid() -> None:
    derived, simulated = Life().live(10), Life(has_pod=True).live(10)
    assert derived.document["status"]["activePods"] == {pod_uid(derived.vmi): node_for(derived.vmi)}
    assert "activePods" not in simulated.document["status"]
    assert simulated.seen == derived.seen
    assert simulated.seen[-1][1] == VMIState("Running")


def test_the_detail_full_writes_no_derived_uid_for_a_vmi_with_a_pod() -> None:
    scheduling = Life({READY_AFTER: "4s"}, has_pod=True).live(1.5)
    assert scheduling.seen[-1][1].phase == "Scheduling"
    assert detail_patch(scheduling.vmi) is None
    assert detail_patch(msgspec.structs.replace(scheduling.vmi, has_pod=False)) is not None
