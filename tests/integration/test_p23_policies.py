"""P23: the admission policies of manifests/ on the real API server: what is denied, warned about, and accepted."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.replicas.catalogue import CATALOGUE, Place
from controller.replicas.wrong_annotations import message_of
from sandbox.admin import Admin, Rejected
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl, new_namespace
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.objects import MERGE
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

POLICIES = Path(__file__).resolve().parents[2] / "manifests" / "controller" / "annotationpolicies.yaml"
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
        pools.make(1)
        pools.sets.make(0)
        pools.make_vmi("lone", labels={"app": "lone"})
        eventually(lambda: "pool-0" in pools.vms())
        for place in OBJECTS:
            assert said(pools, place, {"old": "wrong", "protect": "maybe"}, keep=True) == ""
        kubectl("apply", "--server-side", "-f", str(POLICIES))
        for place in OBJECTS:
            eventually(lambda place=place: said(pools, place, {"new": "x"}), what=f"the policy of {place}")
        yield pools
        kubectl("delete", "-f", str(POLICIES))


def said(pools: PoolNamespace, place: Place, marks: dict[str, str | None], *, keep: bool = False) -> str:
    """Annotate the object as an administrator, and return the error or warning of the API server, or ""."""
    path = f"/apis/{OBJECTS[place].format(f'namespaces/{pools.namespace}')}"
    change = {"metadata": {"annotations": {f"vmherd.dev/{name}": value for name, value in marks.items()}}}
    try:
        answer = Admin(pools.plane.kubeconfig).ask(
            "PATCH", path + ("" if keep else "?dryRun=All"), json.dumps(change).encode(), MERGE
        )
    except Rejected as refused:
        return f"Denied: {refused}"
    return "".join(f"Warning: {each}" for each in answer.headers.getlist("Warning"))


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
    checked.scale(2)
    eventually(lambda: checked.status().get("replicas") == 2)
