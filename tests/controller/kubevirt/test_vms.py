"""Functions that read one VM, and the bytes that a cached VM needs."""

from datetime import timedelta
from types import ModuleType
from typing import Any

import msgspec
import pytest

from controller.kubevirt import pool_types, vm_types, vms
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import AfterStop
from tests.builders import NOW, vmi

SINCE = "2026-08-01T11:30:00Z"


def vm(spec: Any = None, status: Any = None, **metadata: object) -> VirtualMachine:
    document = {"metadata": {"name": "vm-0", "namespace": "default", **metadata}, "spec": spec, "status": status}
    return VMS.decode(msgspec.json.encode(document))


def ready(status: str, since: str | None = SINCE) -> dict[str, object]:
    condition = {"type": "Ready", "status": status, "lastTransitionTime": since}
    return {"conditions": [{"type": "Paused", "status": "True"}, condition]}


@pytest.mark.parametrize("spec", [None, {}, {"template": None}, {"template": {"metadata": None, "spec": None}}])
@pytest.mark.parametrize("status", [None, {}, {"conditions": None, "startFailure": None}])
def test_every_function_accepts_an_empty_vm(spec: Any, status: Any):
    empty = vm(spec, status)
    assert not vms.is_deleting(empty)
    assert not vms.has_pool_finalizer(empty)
    assert not vms.is_ready(empty)
    assert not vms.should_run(empty, None)
    assert vms.unready_since(empty) is None
    assert vms.printable_status_of(empty) == ""
    assert vms.start_failures_of(empty) == 0
    assert vms.revision_of(empty) == ""
    assert vms.template_labels_of(empty) == {}
    assert vms.node_selector_of(empty) == {}
    assert vms.disk_names_of(empty) == ()


@pytest.mark.parametrize(
    ("finalizers", "deleting", "held", "with_disks"),
    [
        (["pool.kubevirt.io/finalizer"], True, True, False),
        (["foregroundDeletion", "pool.kubevirt.io/finalizer"], True, True, True),
        (["foregroundDeletion"], False, False, False),
        (["kubevirt.io/virtualMachineControllerFinalize"], True, False, False),
    ],
)
def test_p6_finalizers_show_what_blocks_the_removal_of_a_vm(finalizers: list[str], deleting, held, with_disks):
    one = vm(finalizers=finalizers, deletionTimestamp=SINCE if deleting else None)
    assert vms.is_deleting(one) is deleting
    assert vms.has_pool_finalizer(one) is held
    assert vms.is_deleting_with_disks(one) is with_disks


@pytest.mark.parametrize(
    ("condition", "minutes"),
    [
        (ready("False"), 30),
        (ready("True"), None),
        (ready("Unknown"), None),
        (ready("False", None), 60),
        (ready("False", SINCE.rstrip("Z")), 30),
    ],
    ids=["not ready", "ready", "unknown", "without a time since the creation", "a time without a zone is UTC"],
)
def test_p15_how_long_a_vm_is_unready(condition: Any, minutes: int | None):
    one = vm(status=condition, creationTimestamp="2026-08-01T11:00:00Z")
    assert vms.unready_since(one) == (None if minutes is None else NOW - timedelta(minutes=minutes))


ALWAYS, HALTED, MANUAL, ONCE, RERUN, WAIT = (
    {"runStrategy": each} for each in ("Always", "Halted", "Manual", "Once", "RerunOnFailure", "WaitAsReceiver")
)
STOP, START = {"action": "Stop", "uid": vmi().metadata.uid}, {"action": "Start"}


def told(state: str, **more: Any) -> dict[str, Any]:
    """The status of a VM that is not ready."""
    return {"printableStatus": state, "conditions": [{"type": "Ready", "status": "False"}], **more}


@pytest.mark.parametrize(
    ("spec", "status", "seen", "meant"),
    [
        ({"running": True}, told(""), None, True),
        ({"running": False}, told(""), None, False),
        (ALWAYS, told("Stopped"), None, True),
        (HALTED, told("Running"), None, False),
        *((MANUAL, told(state), None, True) for state in ("Running", "Starting")),
        *((MANUAL, told(state), None, False) for state in ("Stopped", "Stopping")),
        (RERUN, told("Stopped"), None, False),
        (RERUN, told("CrashLoopBackOff"), None, True),
        (WAIT, told("Stopped"), None, True),
        # A VM that runs once starts only without a VMI.
        *((ONCE, told("Stopped"), each, True) for each in (None, vmi(deleting=True))),
        (ONCE, told("Stopped"), vmi(phase="Succeeded"), False),
        # The new VMI is seen before the status of its VM.
        *((each, told("Stopping"), vmi(), True) for each in (MANUAL, ONCE, RERUN)),
        *((each, told("Stopping", stateChangeRequests=[STOP]), vmi(), False) for each in (MANUAL, ONCE, RERUN)),
        # KubeVirt starts a VM with RerunOnFailure if its status has another run strategy (`shouldStartRerunOnFailure`).
        *((RERUN, told(state, **HALTED), None, True) for state in ("Stopping", "Stopped")),
        *((RERUN, told(state, **RERUN), None, False) for state in ("Stopping", "Stopped")),
        *((MANUAL, told(state, **HALTED), None, False) for state in ("Stopping", "Stopped")),
        # A restart.
        *(
            (each, {"printableStatus": "Stopped", "stateChangeRequests": [START]}, None, True)
            for each in (MANUAL, RERUN)
        ),
        *(
            (each, {"printableStatus": "Stopping", "stateChangeRequests": [STOP]}, None, False)
            for each in (MANUAL, RERUN)
        ),
    ],
)
def test_p14_the_run_strategy_decides_whether_a_vm_should_run(spec: Any, status: Any, seen: Any, meant: bool):
    assert vms.should_run(vm(spec, status), seen) is meant


OUTAGES = {
    "it has run": (True, "VMINotExists", False),
    "it never ran": (False, "VMINotExists", True),
    "it starts": (True, "PodNotReady", True),
}


@pytest.mark.parametrize(("has_run", "reason", "meant"), OUTAGES.values(), ids=OUTAGES)
def test_p14_a_stopped_vm_with_an_unbound_claim_stays_stopped_in_kubevirt_1_9(has_run: bool, reason: str, meant: bool):
    """Later versions say `Stopped`, and never of a VM that is to start."""
    not_ready = [{"type": "Ready", "status": "False", "reason": reason}]
    seen = told("WaitingForVolumeBinding", conditions=not_ready, **(RERUN if has_run else {}))
    assert vms.should_run(vm(RERUN, seen), None) is meant
    assert not vms.should_run(vm(RERUN, seen | {"printableStatus": "Stopped"}), None)
    assert vms.should_run(vm(RERUN, seen | {"stateChangeRequests": [START]}), None)


def test_p13_a_requested_stop_names_the_vmi():
    one = vm(MANUAL, {"stateChangeRequests": [STOP, START]})
    assert vms.is_stop_requested(one, STOP["uid"])
    assert not vms.is_stop_requested(one, "another")
    assert not vms.is_stop_requested(vm(), STOP["uid"])


@pytest.mark.parametrize(
    ("spec", "after", "starts_when_new"),
    [
        ({"runStrategy": "Always"}, AfterStop.STARTS, True),
        ({"runStrategy": "Once"}, AfterStop.STARTS, True),
        ({"runStrategy": "RerunOnFailure"}, AfterStop.WAITS, True),
        ({"runStrategy": "Manual"}, AfterStop.WAITS, False),
        ({"runStrategy": "Halted"}, AfterStop.STAYS, False),
        ({"running": True}, AfterStop.STARTS, True),
        ({"running": False}, AfterStop.STAYS, False),
        (None, AfterStop.STAYS, False),
    ],
)
def test_p13_the_run_strategy_decides_what_kubevirt_does_after_a_vmi_is_deleted(
    spec: Any, after: AfterStop, starts_when_new: bool
):
    assert vms.after_stop(vm(spec)) is after
    assert vms.starts_after_creation(vm(spec)) is starts_when_new


def test_p15_failed_starts_are_counted():
    assert vms.start_failures_of(vm(status={"startFailure": {"consecutiveFailCount": 3}})) == 3


def test_p10_the_disks_of_a_vm_are_in_its_templates_and_volumes_without_duplicates():
    spec = {
        "dataVolumeTemplates": [{"metadata": {"name": "root-0"}}, {"metadata": None}, {"spec": {}}, {"metadata": {}}],
        "template": {
            "spec": {
                "volumes": [
                    {"name": "root", "dataVolume": {"name": "root-0"}},
                    {"name": "hot", "dataVolume": {"name": "hot", "hotpluggable": True}},
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}},
                    {"name": "image", "containerDisk": {"image": "x"}},
                    {"name": "broken", "dataVolume": None, "persistentVolumeClaim": {"claimName": None}},
                ]
            }
        },
    }
    one = vm(spec)
    assert vms.disk_names_of(one) == ("root-0", "hot", "data-0")
    assert len(one.spec.template.spec.volumes) == 4, "the volume without a disk is not kept"


def test_p8_selectors_read_the_template_of_the_vm():
    spec = {"template": {"metadata": {"labels": {"a": "1"}}, "spec": {"nodeSelector": {"zone": "b"}}}}
    one = vm(spec, labels={"a": "2", "kubevirt.io/vm-pool-revision-name": "web-3"})
    assert vms.template_labels_of(one) == {"a": "1"}
    assert vms.node_selector_of(one) == {"zone": "b"}
    assert vms.revision_of(one) == "web-3"


# Memory


@pytest.mark.parametrize("module", [vm_types, pool_types])
def test_decoded_types_are_not_tracked_by_the_garbage_collector(module: ModuleType):
    values = [each for each in vars(module).values() if isinstance(each, type)]
    structs = [each for each in values if issubclass(each, msgspec.Struct) and each is not msgspec.Struct]
    assert len(structs) > 5
    assert [each for each in structs if each.__struct_config__.gc] == []
