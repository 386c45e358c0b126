"""The answers of the simulated webhooks: the objects that they reject, and the reasons."""

import base64
import json
from typing import Any

import pytest

from sandbox.virt_api.admission import mutate, validate
from sandbox.virt_api.registration import USER
from tests.fakes.requests import Document

NOW = "2026-11-21T20:04:02Z"
DISKS = {"devices": {"disks": [{"name": "root", "disk": {}}]}}
VOLUMES = [{"name": "root", "containerDisk": {"image": "fedora:40"}}]
SNAPSHOT = 'until snapshot "snap" completes'


def vm(*, strategy: str | None = "Always", status: Document | None = None, **spec: Any) -> Document:
    strategies = {} if strategy is None else {"runStrategy": strategy}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"domain": DISKS, "volumes": VOLUMES}}
    meta = {"name": "web-0", "labels": {"app": "web"}}
    return {"metadata": meta, "spec": {"template": template, **strategies, **spec}, "status": status or {}}


def vmi(*, labels: dict[str, str] | None = None, phase: str = "Running", **spec: Any) -> Document:
    meta = {"name": "web", "labels": labels or {}}
    return {"metadata": meta, "spec": {"domain": {}, **spec}, "status": {"phase": phase}}


def review(resource: str, new: Document, old: Document | None = None, *, user: str = "someone") -> Document:
    request = {
        "uid": "one",
        "operation": "CREATE" if old is None else "UPDATE",
        "resource": {"resource": resource},
        "userInfo": {"username": user},
        "object": new,
        "oldObject": old,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def rejection(resource: str, new: Document, old: Document | None = None, *, user: str = "someone") -> list[str]:
    """The fields and messages of the rejection; empty if the object is allowed."""
    response = validate(review(resource, new, old, user=user))["response"]
    causes = [] if response["allowed"] else response["status"]["details"]["causes"]
    return [f"{cause.get('field', '')}: {cause['message']}" for cause in causes]


def patched(resource: str, new: Document, old: Document | None = None, *, user: str = "someone") -> Document:
    """The top-level fields that the mutating webhook replaces."""
    answer = mutate(review(resource, new, old, user=user), now=NOW, new_uuid=lambda: "uuid")["response"]
    assert answer["allowed"]
    operations = json.loads(base64.b64decode(answer["patch"])) if "patch" in answer else []
    return {operation["path"]: operation["value"] for operation in operations}


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        (vm(strategy=None), "spec.running: RunStrategy must be specified"),
        (vm(strategy="Sometimes"), "spec.runStrategy: Invalid RunStrategy (Sometimes)"),
        ({"metadata": {}, "spec": {"runStrategy": "Always"}}, "spec.template: missing virtual machine template."),
        (
            vm(running=True),
            "spec.running: Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use "
            "RunStrategy instead",
        ),
        (
            vm(template={"spec": {"domain": DISKS}}),
            "spec.template.spec.domain.devices.disks[0].name: "
            "spec.template.spec.domain.devices.disks[0].Name 'root' not found.",
        ),
        (
            vm(dataVolumeTemplates=[{"metadata": {"name": "data"}, "spec": {"pvc": {}}}]),
            "spec.dataVolumeTemplate[0]: DataVolumeTemplate entry spec.dataVolumeTemplate[0] must be referenced in the "
            "VMI template's 'volumes' list",
        ),
        (
            vm(dataVolumeTemplates=[{"metadata": {"name": "data"}, "spec": {}}]),
            "spec.dataVolumeTemplate[0].PVC.Storage: Missing Data volume PVC or Storage",
        ),
        (
            vm(instancetype={"name": "small"}, template={"spec": {"domain": {"cpu": {"cores": 2}}}}),
            "spec.template.spec.domain.cpu.cores: VM field(s) spec.template.spec.domain.cpu.cores conflicts with "
            "selected instance type",
        ),
        (
            vm(template={"metadata": {"labels": {"kubevirt.io/nodeName": "n1"}}, "spec": {}}),
            "spec.template.metadata.labels: creation of the following reserved kubevirt.io/ labels on a VMI object is "
            "prohibited",
        ),
    ],
)
def test_a_wrong_vm_is_rejected(wrong: Document, cause: str) -> None:
    assert rejection("virtualmachines", wrong) == [cause]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (vm(strategy="Halted"), f"Cannot update vm running state {SNAPSHOT}"),
        (vm(template={"spec": {}}), f"Cannot update vm disks or volumes {SNAPSHOT}"),
    ],
)
def test_a_snapshot_blocks_changes_of_disks_and_running_state(changed: Document, message: str) -> None:
    status = {"snapshotInProgress": "snap"}
    assert rejection("virtualmachines", {**changed, "status": status}, vm(status=status)) == [f"spec: {message}"]


def test_a_restore_blocks_changes_of_the_run_strategy() -> None:
    status = {"restoreInProgress": "back"}
    cause = 'spec: Cannot update VM runStrategy until restore "back" completes'
    assert rejection("virtualmachines", vm(strategy="Halted", status=status), vm(status=status)) == [cause]
    assert rejection("virtualmachines", vm(template={"spec": {}}, status=status), vm(status=status)) == []


def test_a_vm_that_is_being_deleted_is_always_allowed() -> None:
    leaving = {"metadata": {"deletionTimestamp": NOW}, "spec": {}}
    assert rejection("virtualmachines", leaving) == []
    assert patched("virtualmachines", leaving, leaving) == {}


def test_the_deprecated_field_running_causes_a_warning() -> None:
    response = validate(review("virtualmachines", vm(strategy=None, running=True)))["response"]
    assert response["warnings"] == ["spec.running is deprecated, please use spec.runStrategy instead."]


def test_only_kubevirt_changes_the_spec_of_a_vmi() -> None:
    changed = vmi(nodeSelector={"zone": "a"})
    cause = ": update of VMI object is restricted"
    assert rejection("virtualmachineinstances", changed, vmi()) == [cause]
    assert rejection("virtualmachineinstances", changed, vmi(), user=USER) == []


def test_only_kubevirt_changes_the_reserved_labels_of_a_vmi() -> None:
    moved = vmi(labels={"kubevirt.io/nodeName": "n2"})
    [cause] = rejection("virtualmachineinstances", moved, vmi())
    assert "modification of the following reserved kubevirt.io/ labels" in cause
    assert rejection("virtualmachineinstances", moved, vmi(), user=USER) == []
    assert rejection("virtualmachineinstances", vmi(labels={"app": "web"}), vmi()) == []


def test_the_status_of_a_vmi_is_reverted_unless_kubevirt_writes_it() -> None:
    assert patched("virtualmachineinstances", vmi(phase="Failed"), vmi()) == {"/status": {"phase": "Running"}}
    assert patched("virtualmachineinstances", vmi(phase="Failed"), vmi(), user=USER) == {}


def test_an_object_with_all_defaults_gets_no_patch() -> None:
    stored = {**vm(), **{path[1:]: value for path, value in patched("virtualmachines", vm()).items()}}
    assert patched("virtualmachines", stored, stored) == {}


@pytest.mark.parametrize(
    ("selector", "is_allowed"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({}, False),
    ],
)
def test_the_selector_of_a_pool_or_set_must_match_its_template(selector: Document, is_allowed: bool) -> None:
    template = vm()
    pool = {"metadata": {}, "spec": {"selector": selector, "virtualMachineTemplate": template}}
    replica_set = {"metadata": {}, "spec": {"selector": selector, "template": template["spec"]["template"]}}
    expected = [] if is_allowed else ["spec.selector: selector does not match labels."]
    assert rejection("virtualmachinepools", pool) == expected
    assert rejection("virtualmachineinstancereplicasets", replica_set) == expected


def test_the_selector_of_a_pool_never_changes() -> None:
    def pool(**labels: str) -> Document:
        return {"metadata": {}, "spec": {"selector": {"matchLabels": labels}, "virtualMachineTemplate": vm()}}

    old = {**pool(), "spec": {**pool()["spec"], "selector": {"matchLabels": {"app": "db"}}}}
    assert rejection("virtualmachinepools", pool(app="web"), old) == [
        "spec.selector: selector is immutable after creation."
    ]


def test_a_rejection_lists_ten_causes_and_counts_the_others() -> None:
    disks = {"devices": {"disks": [{"name": f"disk-{number}"} for number in range(12)]}}
    response = validate(review("virtualmachines", vm(template={"spec": {"domain": disks}})))["response"]
    assert len(response["status"]["details"]["causes"]) == 10
    assert response["status"]["message"].endswith(", and 2 more validation errors")
