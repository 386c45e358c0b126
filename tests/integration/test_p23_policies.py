"""P23: the admission policies of manifests/ on the real API server: what is denied, warned about, and accepted."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.kubevirt.oddities import oddities_in
from controller.replicas.catalogue import CATALOGUE, Place
from controller.replicas.wrong_annotations import message_of
from sandbox.admin import Admin, Rejected
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl, new_namespace
from tests.controlplane.documents import Document
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.objects import MERGE
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ROOT / "manifests" / "controller" / "annotationpolicies.yaml"
OBJECTS = {
    Place.SET: "kubevirt.io/v1/{}/virtualmachineinstancereplicasets/herd",
    Place.POOL: "pool.kubevirt.io/v1beta1/{}/virtualmachinepools/pool",
    Place.VM: "kubevirt.io/v1/{}/virtualmachines/pool-0",
    Place.VMI: "kubevirt.io/v1/{}/virtualmachineinstances/lone",
}
VALUES = ("", "1", "-1", "30%", "True", "true", "proceed", "held 1 x", " maxUnavailable = 1 ", "recreate", "9999999999")


@pytest.fixture(scope="module")
def checked(idle_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolNamespace]:
    """A set, a pool, its VM and a VMI. Each has two wrong annotations from the time before the policies."""
    directory, kubectl = tmp_path_factory.mktemp("controller"), Kubectl(idle_plane.kubeconfig)
    with new_namespace(idle_plane) as name, controller_process(idle_plane, directory, "--no-leader-elect"):
        pools = PoolNamespace(idle_plane, name)
        pools.make(2)
        pools.sets.make(0)
        pools.make_vmi("lone", labels={"app": "lone"})
        eventually(lambda: "pool-0" in pools.vms())
        for place in OBJECTS:
            assert said(pools, place, {"old": "wrong", "protect": "maybe"}, keep=True) == ""
        kubectl("apply", "--server-side", "-f", str(POLICIES))
        for place in OBJECTS:
            eventually(lambda place=place: said(pools, place, {"new": "x"}), what=f"the policy of {place}")
        for place in (Place.SET, Place.POOL):
            eventually(lambda place=place: odd(pools, place, {"hostnme": "a"})[1], what=f"the warnings of {place}")
        yield pools
        kubectl("delete", "-f", str(POLICIES))


def said(pools: PoolNamespace, place: Place, marks: dict[str, str | None], *, keep: bool = False) -> str:
    """Annotate the object as an administrator, and return the error or warning about annotations, or ""."""
    change = {"metadata": {"annotations": {f"vmherd.dev/{name}": value for name, value in marks.items()}}}
    try:
        warnings = changed(pools, place, change, keep=keep)[1]
    except Rejected as refused:
        return f"Denied: {refused}"
    return "".join(f"Warning: {each}" for each in warnings if "vmherd-manifests-" not in each)


def changed(pools: PoolNamespace, place: Place, change: Document, *, keep: bool = False) -> tuple[Document, list[str]]:
    """Apply a JSON merge patch, and return the new object and the warnings of the API server. Raises Rejected."""
    path = f"/apis/{OBJECTS[place].format(f'namespaces/{pools.namespace}')}" + ("" if keep else "?dryRun=All")
    answer = Admin(pools.plane.kubeconfig).ask("PATCH", path, json.dumps(change).encode(), MERGE)
    return json.loads(answer.data), answer.headers.getlist("Warning")


@pytest.mark.parametrize("place", OBJECTS)
def test_p23_sets_and_pools_with_a_wrong_annotation_are_denied_and_vms_and_vmis_get_a_warning(
    checked: PoolNamespace, place: Place
) -> None:
    begins = "Denied: " if place in (Place.SET, Place.POOL) else "Warning: "
    for name in [each.name.partition("/")[2] for each in CATALOGUE]:
        is_misplaced = all(message_of(f"vmherd.dev/{name}", value, place) for value in VALUES)
        for value in VALUES[:2] if is_misplaced else VALUES:
            wrong = message_of(f"vmherd.dev/{name}", value, place) != ""
            text = said(checked, place, {name: value})
            assert text.startswith(begins if wrong else ""), (name, value, text)
            assert (f"annotation vmherd.dev/{name}" in text) is wrong, (name, value, text)
            assert bool(text) is wrong, (name, value, text)


@pytest.mark.parametrize("place", OBJECTS)
def test_p23_an_old_wrong_annotation_blocks_no_write(checked: PoolNamespace, place: Place) -> None:
    assert (
        said(checked, place, {"old": "wrong", "protect": "maybe"} if place is not Place.VM else {"old": "wrong"}) == ""
    )
    assert said(checked, place, {"old": None}) == ""


def test_p23_what_the_controller_writes_passes(checked: PoolNamespace) -> None:
    for name in ("healed", "unready", "partition-revision"):
        assert said(checked, Place.POOL, {name: "[]{}\n"}) == ""
    assert said(checked, Place.POOL, {"takeover": "held 1 abc"}) == ""
    assert said(checked, Place.VMI, {"early-failures": "3 x"}) == ""
    checked.change({"metadata": {"annotations": {"vmherd.dev/partition": "1"}}})
    eventually(lambda: "vmherd.dev/partition-revision" in checked.read()["metadata"]["annotations"])
    checked.scale(3)
    eventually(lambda: checked.status().get("replicas") == 3)


ODD = {
    "a field": ({"domain": {"memroy": {}, "cpu": None}}, 1),
    "fields of several objects": ({"domain": {"cpu": {"core": 1, "socket": 2}}, "hostnme": "a"}, 3),
    "a deep field": ({"domain": {"features": {"hyperv": {"tlbflush": {"direct": {"x": True}}}}}}, 1),
    "fields in a list": ({"volumes": [{"name": "a", "emptyDsk": {}, "emptyDisk": {"capcity": "1Gi"}}]}, 2),
    "a name of two volumes": ({"volumes": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}, 1),
    "no image": ({"volumes": [{"name": "a", "containerDisk": {}}]}, 1),
    "several": ({"domain": {"memroy": {}}, "volumes": [{"name": "a", "containerDisk": {}}, {"name": "a"}]}, 3),
    "nothing": ({"domain": {"cpu": None}, "nodeSelector": {"x": "y"}, "volumes": [{"name": "a"}]}, 0),
}


def odd(pools: PoolNamespace, place: Place, vmi: Document, *, keep: bool = False) -> tuple[Document, list[str]]:
    """Change the VMIs of the template, and return the set or pool and the warnings."""
    template = {"template": {"spec": vmi}}
    spec = template if place is Place.SET else {"virtualMachineTemplate": {"spec": template}}
    return changed(pools, place, {"spec": spec}, keep=keep)


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("place", [Place.SET, Place.POOL])
def test_an_odd_manifest_gets_the_warnings_of_plan(checked: PoolNamespace, place: Place, case: str) -> None:
    vmi, number = ODD[case]
    manifest, warnings = odd(checked, place, vmi)
    expected, text = oddities_in(manifest), "".join(warnings)
    assert len(expected) == number
    fields = [re.sub(r"\[\d\]", "", each).partition(" is no field ")[0] for each in expected if " is no field " in each]
    others = [each for each in expected if " is no field " not in each]
    assert all(each in text for each in (*fields, *others))
    assert len(warnings) == len(others) + bool(fields)
    assert text.count(", spec.") + bool(fields) == len(fields)


def test_a_field_of_the_machine_gets_the_warning_of_plan(checked: PoolNamespace) -> None:
    machine = {"runing": True, "dataVolumeTemplates": [{"metadata": {"name": "a"}, "spec": {"pcv": {}}}]}
    _, [text] = changed(checked, Place.POOL, {"spec": {"virtualMachineTemplate": {"spec": machine}}})
    assert "spec.virtualMachineTemplate.spec.runing" in text
    assert "spec.virtualMachineTemplate.spec.dataVolumeTemplates.spec.pcv" in text
    assert "are no fields of KubeVirt 1.9, so they may have no effect" in text


@pytest.mark.parametrize("partition", ["1", "2", "9", "9,50%:10m,1", "1,9:10m", "1,9", "100%"])
def test_a_partition_above_all_ordinals_gets_the_warning_of_plan(checked: PoolNamespace, partition: str) -> None:
    manifest, warnings = changed(
        checked, Place.POOL, {"metadata": {"annotations": {"vmherd.dev/partition": partition}}}
    )
    assert [f"ann{each.rpartition(': ann')[2]}".strip('"') for each in warnings] == list(oddities_in(manifest))


def test_only_a_change_of_the_spec_or_the_partition_repeats_a_warning(checked: PoolNamespace) -> None:
    said_once = odd(checked, Place.SET, {"hostnme": "a"}, keep=True)[1]
    assert len(said_once) == 1
    assert changed(checked, Place.SET, {"metadata": {"annotations": {"vmherd.dev/rollback": "stalled"}}})[1] == []
    assert changed(checked, Place.SET, {"spec": {"paused": True}})[1] == said_once


def test_no_example_gets_a_warning(checked: PoolNamespace) -> None:
    files = [each for folder in ("manifests/examples", "docs/examples") for each in ("-f", str(ROOT / folder))]
    done = Kubectl(checked.plane.kubeconfig, checked.namespace)("create", "--dry-run=server", *files, check=False)
    assert done.stdout.count("virtualmachinepool.") >= 10
    assert "vmherd-manifests" not in done.stderr
