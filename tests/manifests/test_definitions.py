"""The definitions of the kinds in kubectl: names, columns, explanations, versions, subresources."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tests.kstatus import kstatus_of
from tests.manifests.documents import DEFINITIONS, POOL, REPLICASETS, SETS, Subject, columns, load, status_patch

pytestmark = pytest.mark.cluster

each_kind = pytest.mark.parametrize("subject", [SETS, POOL], ids=lambda each: each.word)

EXPLAINED = {
    "vmirs": "keeps a number of VirtualMachineInstances running",
    "vmirs.spec": "The number of desired VMIs",
    "vmirs.spec.selector": "must match the labels in",
    "vmirs.spec.template.metadata": "the prefix of their names",
    "vmirs.spec.template.spec": "a VirtualMachineInstance spec",
    "vmirs.status": "The number of active VMIs that are ready",
    "vmpool": "keeps a number of VirtualMachines",
    "vmpool.spec.virtualMachineTemplate.spec": "a VirtualMachine spec",
    "vmpool.spec.maxUnavailable": "The maximum number of VMs that updates and healing",
    "vmpool.spec.appendPostfixToSecretReferences": "The old name of nameGeneration.appendIndexToSecretRefs",
    "vmpool.status": "The state of the pool in one word",
}


def sample(kind: str) -> dict[str, Any]:
    """An object whose status has a value for every column."""
    api_version, status = {
        "VirtualMachineInstance": (
            "kubevirt.io/v1",
            {
                "phase": "Running",
                "nodeName": "node-1",
                "interfaces": [{"ipAddress": "10.0.0.7"}],
                "conditions": [{"type": "LiveMigratable", "status": "False"}, {"type": "Ready", "status": "True"}],
            },
        ),
        "VirtualMachine": ("kubevirt.io/v1", {"printableStatus": "Running"}),
        "DataVolume": ("cdi.kubevirt.io/v1beta1", {"phase": "Succeeded"}),
    }[kind]
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "web"}, "spec": {}, "status": status}


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_a_definition_is_served_whole_named_like_its_file_and_accepted_without_changes(
    kubectl: Kubectl, path: Path
) -> None:
    definition = load(path)
    spec = definition["spec"]
    assert path.stem == f"{spec['group']}_{spec['names']['plural']}"
    conditions = kubectl.json("get", "crd", definition["metadata"]["name"])["status"]["conditions"]
    assert {entry["type"]: entry["status"] for entry in conditions} == {"NamesAccepted": "True", "Established": "True"}
    applied = kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(path))
    assert [line for line in applied.stderr.splitlines() if "last-applied-configuration" not in line] == []


def test_kustomize_reads_the_one_schema_for_each_version(kubectl: Kubectl, tmp_path: Path) -> None:
    (tmp_path / REPLICASETS.name).write_text(REPLICASETS.read_text())
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{REPLICASETS.name}]\nnamePrefix: ''\n")
    built = tmp_path / "built.yaml"
    built.write_text(kubectl("kustomize", str(tmp_path)).stdout)
    assert load(built) == load(REPLICASETS)


@pytest.mark.parametrize(
    ("subject", "version"), [(subject, version) for subject in (SETS, POOL) for version in subject.versions]
)
def test_an_object_can_be_written_and_read_in_every_version(kubectl: Kubectl, subject: Subject, version: str) -> None:
    definition = load(subject.definition)
    group, stored = definition["spec"]["group"], kubectl.json("get", "crd", definition["metadata"]["name"])["status"]
    assert stored["storedVersions"] == [subject.versions[0]], "the newest"
    kubectl.create(subject({"apiVersion": f"{group}/{version}"}))
    for other in subject.versions:
        document = kubectl.json("get", f"{definition['spec']['names']['plural']}.{other}.{group}", "web")
        assert (document["apiVersion"], document["spec"]) == (f"{group}/{other}", subject()["spec"])


OF_OWNERS = "NAME DESIRED CURRENT READY AGE"
OF_VMIS = "NAME AGE PHASE IP NODENAME READY"
HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    **{short: (SETS(), OF_OWNERS) for short in ("vmirs", "vmirss")},
    **{short: (POOL(), OF_OWNERS) for short in ("vmpool", "vmpools", "virtualmachinepool")},
    **{short: (sample("VirtualMachineInstance"), OF_VMIS) for short in ("vmi", "vmis")},
    "vm": (sample("VirtualMachine"), "NAME AGE STATUS READY"),
    "dv": (sample("DataVolume"), "NAME PHASE PROGRESS RESTARTS AGE"),
}


@pytest.mark.parametrize("short", HEADERS)
def test_a_short_name_prints_the_columns_that_users_know(kubectl: Kubectl, short: str) -> None:
    made, header = HEADERS[short]
    kubectl.create(made)
    assert columns(kubectl("get", short).stdout.splitlines()[0]) == header


SHOWN = {
    "updatedReplicas": 1,
    "printableStatus": "Degraded",
    "currentRevision": "web-1",
    "labelSelector": "app=web",
    "problem": "web-3: ImagePullBackOff, Back-off pulling image",
}


@each_kind
def test_the_wide_columns_show_the_progress_and_the_first_problem(kubectl: Kubectl, subject: Subject) -> None:
    kubectl.create(subject())
    kubectl("patch", subject.short, "web", *status_patch(json.dumps(SHOWN)))
    header, row = kubectl("get", subject.short, "-o", "wide").stdout.splitlines()
    assert columns(header) == "NAME DESIRED CURRENT READY AGE UPDATED STATUS REVISION SELECTOR PROBLEM"
    assert columns(row).endswith("1 Degraded web-1 app=web web-3: ImagePullBackOff, Back-off pulling image")


@each_kind
def test_a_new_object_is_not_current_before_the_controller_has_read_it(kubectl: Kubectl, subject: Subject) -> None:
    kubectl.create(subject())
    created = kubectl.json("get", subject.short, "web")
    assert created["status"] == {"observedGeneration": -1}
    assert kstatus_of(created).status == "InProgress"


def test_the_columns_of_a_vmi_show_where_it_runs(kubectl: Kubectl) -> None:
    kubectl.create(sample("VirtualMachineInstance"))
    name, _age, *rest = kubectl("get", "vmi", "--no-headers").stdout.split()
    assert [name, *rest] == ["web", "Running", "10.0.0.7", "node-1", "True"]


def test_get_all_shows_sets_pools_and_vmis(kubectl: Kubectl) -> None:
    kubectl.create(SETS())
    kubectl.create(POOL())
    kubectl.create(sample("VirtualMachineInstance"))
    shown = set(kubectl("get", "all", "-o", "name").stdout.split())
    assert shown == {f"{name}/web" for name in ("virtualmachineinstance.kubevirt.io", SETS.full_name, POOL.full_name)}


@pytest.mark.parametrize(("field", "words"), EXPLAINED.items(), ids=EXPLAINED)
def test_kubectl_explains_a_field(kubectl: Kubectl, field: str, words: str) -> None:
    # The API server publishes the schema of a new kind after a delay.
    eventually(lambda: words in columns(kubectl("explain", field, check=False).stdout), what=field)


def undescribed(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """The paths of all fields that have no description."""
    for name, field in schema.get("properties", {}).items():
        if "description" not in field and path + name != "metadata":
            yield path + name
        yield from undescribed(field.get("items", field), f"{path}{name}.")


@each_kind
def test_every_field_is_explained(subject: Subject) -> None:
    assert [*undescribed(load(subject.definition)["spec"]["versions"][0]["schema"]["openAPIV3Schema"])] == []


@each_kind
def test_the_status_is_written_only_through_its_subresource(kubectl: Kubectl, subject: Subject) -> None:
    kubectl.create(subject({"status": {"replicas": 9}}))
    other = '{"status": {"replicas": 9}, "spec": {"replicas": 3}}'
    kubectl("patch", subject.short, "web", "--type=merge", "-p", other)
    assert kubectl.json("get", subject.short, "web")["status"] == {"observedGeneration": -1}
    kubectl("patch", subject.short, "web", *status_patch('{"replicas": 9}', spec='{"replicas": 8}'))
    document = kubectl.json("get", subject.short, "web")
    assert (document["status"]["replicas"], document["spec"]["replicas"]) == (9, 3)


@each_kind
def test_the_status_has_every_reported_field(kubectl: Kubectl, subject: Subject) -> None:
    """R11, P17: the schema knows every reported field, and prunes none."""
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    times = {"lastProbeTime": "2026-08-01T12:00:00Z", "lastTransitionTime": "2026-08-01T12:00:00Z"}
    status = {
        "replicas": 3,
        "readyReplicas": 2,
        "updatedReplicas": 1,
        "observedGeneration": 4,
        "labelSelector": "app=web",
        "currentRevision": "web-1",
        "updateRevision": "web-4",
        "printableStatus": "Updating",
        "problem": "web-3: ImagePullBackOff, Back-off pulling image",
        "conditions": [{**condition, **times}],
    }
    kubectl.create(subject())
    kubectl("replace", "--subresource=status", "--validate=strict", "-f", "-", stdin=subject({"status": status}))
    assert kubectl.json("get", subject.short, "web")["status"] == status


def test_a_vmi_has_no_status_subresource(kubectl: Kubectl) -> None:
    """In KubeVirt too, an ordinary patch of a VMI also writes the status."""
    kubectl.create(sample("VirtualMachineInstance"))
    assert kubectl.json("get", "vmi", "web")["status"]["phase"] == "Running"
    assert kubectl("patch", "vmi", "web", *status_patch('{"phase": "Failed"}'), check=False).returncode != 0
    kubectl("patch", "vmi", "web", "--type=merge", "-p", '{"status": {"phase": "Succeeded"}}')
    assert kubectl.json("get", "vmi", "web")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize("kind", ["VirtualMachine", "DataVolume"])
def test_a_vm_and_a_data_volume_have_a_status_subresource(kubectl: Kubectl, kind: str) -> None:
    kubectl.create(sample(kind))
    # As in KubeVirt, the definition of a VM has a default for this field.
    default = {"printableStatus": "Stopped"} if kind == "VirtualMachine" else {}
    assert kubectl.json("get", kind, "web").get("status", default) == default
    kubectl("patch", kind, "web", *status_patch('{"phase": "Pending"}'))
    assert kubectl.json("get", kind, "web")["status"] == {"phase": "Pending", **default}
