"""The life of a simulated VM on the fake API server: run strategies, storage and status."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.claims import CLAIMS
from sandbox.datavolumes import DATA_VOLUMES
from sandbox.settings import BEHAVIOR, BEHAVIORS, DETAIL, READY_AFTER, SHUTDOWN_AFTER, TIME_SCALE, SimulationSettings
from sandbox.vm_status import backoff_s
from sandbox.vmis import VMIS
from sandbox.vms import FINALIZER, VMS
from tests.fakes.requests import Document
from tests.sandbox.machines import Machines, vm_document
from tests.sandbox.replay import Recording


def asking(
    behavior: str, strategy: str = "Always", annotations: Mapping[str, str] = {}, disks: Sequence[str] = ()
) -> Machines:
    annotations = {BEHAVIOR: behavior, READY_AFTER: "200ms", **annotations}
    return Machines(vm_document(strategy=strategy, annotations=annotations, disks=disks))


@pytest.mark.parametrize(
    ("power", "runs"),
    [
        *(({"runStrategy": strategy}, True) for strategy in ("Always", "RerunOnFailure", "Once")),
        *(({"runStrategy": strategy}, False) for strategy in ("Manual", "Halted")),
        ({"running": True, "runStrategy": None}, True),
        ({"running": False, "runStrategy": None}, False),
        ({"running": None, "runStrategy": None}, False),
    ],
)
def test_a_new_vm_gets_its_disks_and_is_started_as_its_strategy_says(power: Document, runs: bool) -> None:
    document = vm_document(disks=["a"])
    document["spec"] |= power
    machines = Machines(document).live(0.2)
    assert machines.word == "Provisioning"
    machines.live(10)
    assert machines.get(DATA_VOLUMES, "a")["status"]["phase"] == "Succeeded"
    [owner] = machines.get(CLAIMS, "a")["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (machines.uid(DATA_VOLUMES, "a"), True)
    assert (machines.document(VMIS) is not None) == runs
    assert machines.word == ("Running" if runs else "Stopped")
    assert machines.status().get("ready") is machines.status().get("created") is (True if runs else None)


@pytest.mark.parametrize(
    ("strategy", "behavior", "starts"),
    [
        ("Always", "finish", "again and again"),
        ("RerunOnFailure", "finish", "once"),
        ("RerunOnFailure", "fail", "again and again"),
        ("RerunOnFailure", "crash-loop", "again and again"),
        ("Once", "finish", "once"),
        ("Once", "fail", "once"),
        ("Manual", "finish", "never"),
    ],
)
def test_the_run_strategy_decides_whether_an_ended_vmi_is_started_again(
    strategy: str, behavior: str, starts: str
) -> None:
    started = len(asking(behavior, strategy).live(120).done("create", VMIS))
    assert {"again and again": started > 2, "once": started == 1, "never": started == 0}[starts]


def test_a_vm_that_is_halted_loses_its_vmi_and_gets_a_new_one_when_it_runs_again() -> None:
    machines = Machines(vm_document(annotations={SHUTDOWN_AFTER: "5s"})).live(5)
    machines.patch(VMS, "vm", {"spec": {"runStrategy": "Halted"}})
    assert machines.live(3).word == "Stopping"
    assert machines.live(5).document(VMIS) is None
    assert machines.word == "Stopped"
    machines.patch(VMS, "vm", {"spec": {"runStrategy": "Always"}})
    assert machines.live(5).word == "Running"


def test_a_manual_vm_is_started_and_stopped_on_request_and_the_request_is_removed() -> None:
    machines = Machines(vm_document(strategy="Manual")).live(1)
    machines.patch(VMS, "vm", {"status": {"stateChangeRequests": [{"action": "Start"}]}})
    assert machines.live(5).word == "Running"
    assert "stateChangeRequests" not in machines.status()
    stop = {"action": "Stop", "uid": machines.uid(VMIS)}
    machines.patch(VMS, "vm", {"status": {"stateChangeRequests": [stop]}})
    assert machines.live(5).document(VMIS) is None
    assert "stateChangeRequests" not in machines.status()
    assert machines.word == "Stopped"


@pytest.mark.parametrize(
    ("behavior", "seconds", "word"),
    [
        ("never-ready", 20, "Running"),
        ("image-error", 0.13, "ErrImagePull"),
        ("image-error", 20, "ImagePullBackOff"),
        ("unschedulable", 20, "ErrorUnschedulable"),
        ("pvc-missing", 20, "ErrorPvcNotFound"),
        ("fail", 20, "CrashLoopBackOff"),
        ("datavolume-error", 20, "DataVolumeError"),
    ],
)
def test_the_printable_status_names_the_problem_and_the_vm_is_not_ready(
    behavior: str, seconds: float, word: str
) -> None:
    machines = asking(behavior, disks=["a"] if behavior == "datavolume-error" else ()).live(seconds)
    assert machines.word == word
    if behavior == "datavolume-error":
        assert machines.get(DATA_VOLUMES, "a")["status"]["phase"] == "Failed"
        assert machines.document(VMIS) is None
    assert "ready" not in machines.status()
    assert machines.status()["conditions"][0]["status"] == "False"


def test_a_vm_without_a_vmi_says_since_when_it_is_not_ready() -> None:
    machines = Machines(vm_document()).live(5)
    machines.patch(VMS, "vm", {"spec": {"runStrategy": "Halted"}})
    halted = machines.now
    ready, *copied = machines.live(60).status()["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "False", "VMINotExists")
    assert datetime.fromisoformat(ready["lastTransitionTime"]) == halted
    assert datetime.fromisoformat(ready["lastProbeTime"]) == halted
    assert [each["type"] for each in copied] == ["LiveMigratable", "StorageLiveMigratable"], "until the next start"


def test_a_vm_stays_until_its_vmi_is_gone_and_keeps_foreign_finalizers() -> None:
    machines = Machines(vm_document(annotations={SHUTDOWN_AFTER: "5s"}))
    machines.patch(VMS, "vm", {"metadata": {"finalizers": ["example.org/a", "example.org/b"]}}).live(5)
    assert machines.get(VMS)["metadata"]["finalizers"] == ["example.org/a", "example.org/b", FINALIZER]
    machines.delete(VMS, "vm")
    assert machines.live(4).word == "Terminating"
    assert FINALIZER in machines.get(VMS)["metadata"]["finalizers"]
    machines.live(4)
    assert machines.get(VMS)["metadata"]["finalizers"] == ["example.org/a", "example.org/b"]
    machines.patch(VMS, "vm", {"metadata": {"finalizers": []}})
    assert machines.document(VMS) is None


def test_a_vmi_without_a_controller_is_adopted_and_a_foreign_vmi_delays_the_vm() -> None:
    free, foreign = Machines(vm_document()), Machines(vm_document())
    vmi = {"metadata": {"name": "vm"}, "spec": {}}
    free.create(VMIS, vmi)
    other = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": True}
    foreign.create(VMIS, {**vmi, "metadata": {"name": "vm", "ownerReferences": [other]}})
    assert free.live(5).word == "Running"
    assert free.get(VMIS)["metadata"]["ownerReferences"][0]["uid"] == free.uid(VMS)
    assert foreign.live(5).word == "Stopped"
    foreign.delete(VMIS, "vm")
    assert foreign.live(5).word == "Running"


def test_a_data_volume_that_lost_its_owner_is_adopted_by_the_next_vm_of_that_name() -> None:
    machines = Machines(vm_document(disks=["a"])).live(5)
    before = machines.uid(DATA_VOLUMES, "a"), machines.uid(CLAIMS, "a")
    machines.delete(VMS, "vm")
    machines.patch(DATA_VOLUMES, "a", {"metadata": {"ownerReferences": []}}).live(5)
    assert machines.document(VMS) is None
    assert "ownerReferences" not in machines.get(DATA_VOLUMES, "a")["metadata"]
    machines.create(VMS, vm_document(disks=["a"]))
    assert machines.live(5).word == "Running"
    assert (machines.uid(DATA_VOLUMES, "a"), machines.uid(CLAIMS, "a")) == before
    [owner] = machines.get(DATA_VOLUMES, "a")["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (machines.uid(VMS), True)


def test_an_adopted_data_volume_keeps_its_other_owners_and_a_terminating_one_is_not_adopted() -> None:
    other = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}
    machines = Machines()
    for name, finalizers in (("stays", []), ("goes", ["example.org/a"])):
        meta = {"name": name, "ownerReferences": [other], "finalizers": finalizers}
        machines.create(DATA_VOLUMES, {"metadata": meta, "spec": {}})
    machines.delete(DATA_VOLUMES, "goes")
    machines.create(VMS, vm_document(disks=["stays", "goes"]))
    machines.live(5)
    owners = machines.get(DATA_VOLUMES, "stays")["metadata"]["ownerReferences"]
    assert [owner["uid"] for owner in owners] == ["x", machines.uid(VMS)]
    assert machines.get(DATA_VOLUMES, "goes")["metadata"]["ownerReferences"] == [other]


@pytest.mark.parametrize(("strategy", "word"), [("Always", "WaitingForVolumeBinding"), ("Halted", "Stopped")])
def test_an_unbound_pvc_matters_to_a_vm_that_should_run(strategy: str, word: str) -> None:
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}]
    machines = Machines(vm_document(strategy=strategy, volumes=volumes, annotations={READY_AFTER: "1m"}))
    machines.create(CLAIMS, {"metadata": {"name": "disk", "annotations": {BEHAVIOR: "never-ready"}}, "spec": {}})
    assert machines.live(5).word == word


def test_a_data_volume_of_another_owner_is_used_and_not_adopted() -> None:
    machines = Machines(vm_document("first", disks=["a"])).live(5)
    machines.create(VMS, vm_document("second", disks=["a"]))
    machines.live(5)
    assert machines.status("second")["printableStatus"] == "Running"
    [owner] = machines.get(DATA_VOLUMES, "a")["metadata"]["ownerReferences"]
    assert owner["name"] == "first"


def test_a_vm_with_data_volumes_waits_until_their_kind_is_served_and_reports_it() -> None:
    machines = Machines(vm_document(disks=["a"]), serves_data_volumes=False).live(5)
    assert machines.document(VMIS) is None
    assert machines.word == "Stopped"
    assert [condition["reason"] for condition in machines.status()["conditions"]] == ["VMINotExists", "FailedCreate"]
    machines.serves_data_volumes = True
    assert machines.live(5).word == "Running"
    assert "Failure" not in {condition["type"] for condition in machines.status()["conditions"]}


def test_a_vm_without_data_volumes_does_not_wait_for_their_kind() -> None:
    assert Machines(vm_document(), serves_data_volumes=False).live(5).word == "Running"


events = st.one_of(
    st.tuples(st.just("live"), st.floats(0, 10)),
    st.tuples(st.just("strategy"), st.sampled_from(("Always", "RerunOnFailure", "Once", "Manual", "Halted"))),
    st.tuples(st.just("behavior"), st.sampled_from([None, *BEHAVIORS])),
    st.tuples(st.just("delete"), st.sampled_from(["VirtualMachineInstance", "DataVolume"])),
    st.tuples(st.just("request"), st.sampled_from(["Start", "Stop"])),
)


@given(st.lists(events, max_size=8))
def test_after_any_changes_a_vm_comes_to_rest_and_can_be_deleted(story: list[tuple[str, object]]) -> None:
    machines = Machines(vm_document(disks=["a"]))
    for event, value in story:
        match event:
            case "live":
                machines.live(float(str(value)))
            case "strategy":
                machines.patch(VMS, "vm", {"spec": {"runStrategy": value}})
            case "behavior":
                annotations = {"metadata": {"annotations": {BEHAVIOR: value}}}
                machines.patch(VMS, "vm", {"spec": {"template": annotations}})
            case "request":
                request = {"action": value, "uid": machines.uid(VMIS)}
                machines.patch(VMS, "vm", {"status": {"stateChangeRequests": [request]}})
            case _:
                resource, name = (VMIS, "vm") if value == VMIS.kind else (DATA_VOLUMES, "a")
                if machines.document(resource, name) is not None:
                    machines.delete(resource, name)
    machines.patch(VMS, "vm", {"spec": {"runStrategy": "Halted"}})
    assert machines.live(60).document(VMIS) is None
    machines.delete(VMS, "vm")
    assert machines.live(60).document(VMS) is None


def test_a_vm_is_migrating_from_the_begin_to_the_end_of_its_migration_as_in_the_recording() -> None:
    machines = Machines(vm_document()).live(10)
    words = [machines.word]
    for time in ("startTimestamp", "endTimestamp"):
        machines.patch(VMIS, "vm", {"status": {"migrationState": {time: "2026-08-01T12:00:09Z"}}})
        words.append(machines.live(1).word)
    recorded = [vm["status"]["printableStatus"] for _, vm in Recording("vm-drained").story(VMS)]
    assert words == [word for word, _ in groupby(recorded)]


def conditions(document: Document) -> dict[str, tuple[str, str | None]]:
    return {each["type"]: (each["status"], each.get("reason")) for each in document["status"]["conditions"]}


def set_behavior(machines: Machines, behavior: str | None) -> None:
    machines.patch(VMIS, "vm", {"metadata": {"annotations": {BEHAVIOR: behavior}}}).live(3)


@pytest.mark.parametrize("detail", ["short", "full"])
@pytest.mark.parametrize(("behavior", "reason"), [("paused", "PausedByUser"), ("io-error", "PausedIOError")])
def test_a_paused_vmi_and_its_vm_are_not_ready_until_the_vmi_goes_on(behavior: str, reason: str, detail: str) -> None:
    machines = Machines(vm_document(annotations={DETAIL: detail})).live(5)
    before = machines.uid(VMIS)
    set_behavior(machines, behavior)
    for document in (machines.get(VMIS), machines.get(VMS)):
        told = conditions(document)
        assert told["Paused"] == ("True", reason)
        assert told["Ready"] == ("False", "ReadinessGatesNotReady")
    assert machines.get(VMIS)["status"]["phase"] == "Running"
    assert (machines.word, machines.status().get("ready")) == ("Paused", None)
    set_behavior(machines, None)
    for document in (machines.get(VMIS), machines.get(VMS)):
        assert "Paused" not in conditions(document)
        assert conditions(document)["Ready"] == ("True", None)
    assert (machines.word, machines.status()["ready"], machines.uid(VMIS)) == ("Running", True, before)


# The number of failed starts, and the delay of the next start


def test_failed_starts_are_counted_and_wait_longer_and_longer() -> None:
    machines = asking("fail")
    waits: list[float] = []
    for _ in range(3000):
        machines.live(0.1)
        failure = machines.status().get("startFailure")
        if failure is not None and failure["consecutiveFailCount"] > len(waits):
            waits.append(round((time_of_retry(machines) - machines.now).total_seconds(), 1))
            assert failure["consecutiveFailCount"] == len(waits)
            assert machines.word == "CrashLoopBackOff"
            assert failure["lastFailedVMIUID"].startswith("uid-")
    assert all(10 * count**2 - 0.2 <= wait <= 15 * count**2 for count, wait in enumerate(waits, start=1)), waits
    assert len(waits) >= 3


@given(st.integers(1, 1000), st.text())
def test_a_backoff_is_ten_seconds_times_the_square_and_up_to_half_more_and_at_most_300_seconds(
    failures: int, uid: str
) -> None:
    least = 10 * failures**2
    assert min(least, 300) <= backoff_s(failures, uid) <= min(least * 1.5, 300)


def test_the_backoffs_of_vms_that_fail_together_differ() -> None:
    assert len({backoff_s(3, f"uid-{number}") for number in range(100)}) > 20


def test_a_time_scale_shortens_the_backoff_also_as_the_default_of_the_simulator() -> None:
    own = asking("fail", annotations={TIME_SCALE: "0.01"}).live(1)
    default = Machines(
        vm_document(annotations={BEHAVIOR: "fail", READY_AFTER: "200ms"}), defaults=SimulationSettings(time_scale=0.01)
    ).live(1)
    for machines in (own, default):
        assert machines.status()["startFailure"]["consecutiveFailCount"] >= 2
        assert time_of_retry(machines) - machines.now < timedelta(seconds=1.5)


@pytest.mark.parametrize("behavior", ["crash-loop", "finish"])
def test_a_guest_that_dies_after_running_is_started_again_at_once_and_is_no_failed_start(behavior: str) -> None:
    machines, words = asking(behavior), set()
    for _ in range(300):
        machines.live(0.1)
        words.add(machines.word)
        assert "startFailure" not in machines.status()
    assert "CrashLoopBackOff" not in words
    assert len(machines.done("create", VMIS)) > 20


def test_the_first_start_that_succeeds_ends_the_row_of_failures() -> None:
    machines = asking("fail", annotations={TIME_SCALE: "0.01"}).live(1)
    assert machines.status()["startFailure"]["consecutiveFailCount"] >= 2
    machines.patch(VMS, "vm", {"spec": {"template": {"metadata": {"annotations": {BEHAVIOR: None}}}}}).live(30)
    assert "startFailure" not in machines.status()
    assert machines.word == "Running"


def time_of_retry(machines: Machines) -> datetime:
    return datetime.fromisoformat(machines.status()["startFailure"]["retryAfterTimestamp"])
