"""A namespace with pools: the simulator runs their VMs, and the shared controller reconciles the pools."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import new_namespace, running_plane
from tests.forked import ForkedProgram
from tests.integration.controller_process import (
    PATIENT_LEASE,
    ControllerProcess,
    Rejected,
    ReplicaSetNamespace,
    controller_process,
    eventually,
)

POOL_LABELS = {"app": "pool"}
MEMORY: dict[str, Any] = {"resources": {"requests": {"memory": "64M"}}}
BEHAVIOR = "sim.vmherd.dev/behavior"
READY_AFTER = "sim.vmherd.dev/ready-after"
FINALIZER = "pool.kubevirt.io/finalizer"
HOLD = "test.vmherd.dev/hold"
REVISION = "kubevirt.io/vm-pool-revision-name"


def vm_template(
    *,
    labels: dict[str, str] | None = None,
    vmi_labels: dict[str, str] | None = None,
    vmi_annotations: dict[str, str] | None = None,
    disks: tuple[str, ...] = (),
    volumes: tuple[dict[str, Any], ...] = (),
    memory: str = "64M",
    vmi_spec: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A `virtualMachineTemplate`. For each name in `disks`, it has a dataVolumeTemplate and a volume with this name."""
    own = [{"name": name, "dataVolume": {"name": name}} for name in disks]
    devices = {"disks": [{"name": volume["name"], "disk": {"bus": "virtio"}} for volume in (*own, *volumes)]}
    template = {
        "metadata": {"labels": {**POOL_LABELS, **(vmi_labels or {})}, "annotations": {**(vmi_annotations or {})}},
        "spec": {
            "domain": {"resources": {"requests": {"memory": memory}}, "devices": devices},
            "volumes": [*own, *volumes],
            **(vmi_spec or {}),
        },
    }
    if "running" not in spec:
        spec.setdefault("runStrategy", "Always")
    if disks:
        spec["dataVolumeTemplates"] = [data_volume_template(name) for name in disks]
    return {"metadata": {"labels": {**POOL_LABELS, **(labels or {})}}, "spec": {**spec, "template": template}}


def data_volume_template(name: str, *, size: str = "1Gi", **claim_spec: Any) -> dict[str, Any]:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **claim_spec}
    return {"metadata": {"name": name}, "spec": {"pvc": claim, "source": {"blank": {}}}}


START_REVISION = "revision-start-vm-"


class PoolNamespace(ReplicaSetNamespace):
    """A namespace with pools and their VMs, disks and revisions: creates, changes and reads its objects."""

    def __init__(self, plane: ControlPlane, namespace: str, *, pool_group: str = "pool.kubevirt.io") -> None:
        super().__init__(plane, namespace)
        self.uncounted = frozenset({"events"})
        self._pool_version = f"{pool_group}/v1beta1"
        self._pools = f"/apis/{self._pool_version}/namespaces/{namespace}/virtualmachinepools"
        self._vms = f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines"
        self._core = f"/api/v1/namespaces/{namespace}"
        self._cdi = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes"
        self._apps = f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"

    def make_pool(
        self,
        replicas: int = 3,
        *,
        name: str = "pool",
        template: dict[str, Any] | None = None,
        annotations: dict[str, str] | None = None,
        finalizers: tuple[str, ...] = (),
        **spec: Any,
    ) -> dict[str, Any]:
        body = {
            "apiVersion": self._pool_version,
            "kind": "VirtualMachinePool",
            "metadata": {"name": name, "annotations": annotations or {}, "finalizers": list(finalizers)},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": POOL_LABELS},
                "virtualMachineTemplate": template or vm_template(),
                **spec,
            },
        }
        return self._send("POST", self._pools, body)

    def change_pool(self, change: dict[str, Any], *, name: str = "pool") -> dict[str, Any]:
        """Apply a JSON merge patch to a pool."""
        return self._send("PATCH", f"{self._pools}/{name}", change)

    def change_template(self, template: dict[str, Any], *, name: str = "pool") -> dict[str, Any]:
        steps = [{"op": "replace", "path": "/spec/virtualMachineTemplate", "value": template}]
        body = json.dumps(steps).encode()
        return json.loads(self._admin.send("PATCH", f"{self._pools}/{name}", body, "application/json-patch+json"))

    def scale(self, replicas: int, *, name: str = "pool") -> dict[str, Any]:
        return self.change_pool({"spec": {"replicas": replicas}}, name=name)

    def pool(self, name: str = "pool") -> dict[str, Any]:
        return self._send("GET", f"{self._pools}/{name}")

    def delete_pools(self) -> None:
        self._send("DELETE", self._pools)

    def pool_exists(self, name: str = "pool") -> bool:
        return any(pool["metadata"]["name"] == name for pool in self._send("GET", self._pools)["items"])

    def pool_status(self, name: str = "pool") -> dict[str, Any]:
        return self.pool(name).get("status") or {}

    def pool_statuses(self) -> dict[str, dict[str, Any]]:
        return {name: pool.get("status") or {} for name, pool in self._named(self._pools).items()}

    def pool_condition(self, type_: str, *, name: str = "pool") -> dict[str, Any] | None:
        return next((c for c in self.pool_status(name).get("conditions") or () if c["type"] == type_), None)

    def make_vm(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        finalizers: tuple[str, ...] = (),
        template: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        template = template or vm_template()
        metadata = {"name": name, "labels": labels or POOL_LABELS, "finalizers": list(finalizers)}
        body = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": metadata,
            "spec": template["spec"],
        }
        return self._send("POST", self._vms, body)

    def vms(self) -> dict[str, dict[str, Any]]:
        return self._named(self._vms)

    def vm(self, name: str) -> dict[str, Any]:
        return self._send("GET", f"{self._vms}/{name}")

    def change_vm(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        return self._send("PATCH", f"{self._vms}/{name}", change)

    def change_vm_status(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        return self._send("PATCH", f"{self._vms}/{name}/status", {"status": change})

    def change_vm_by_steps(self, name: str, *steps: tuple[str, Any]) -> None:
        """Apply a JSON patch to the VM. Each step is the path and the value of an `add` operation."""
        changes = [{"op": "add", "path": path, "value": value} for path, value in steps]
        body = json.dumps(changes).encode()
        self._admin.send("PATCH", f"{self._vms}/{name}", body, "application/json-patch+json")

    def delete_vm(self, name: str, *, foreground: bool = False) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
        path = f"{self._vms}/{name}"
        if foreground:
            self._send("DELETE", path, options)
        else:
            self._send("DELETE", path)

    def make_disk(self, name: str, *, owner: dict[str, Any], finalizers: tuple[str, ...] = ()) -> None:
        """Create a PVC and then its DataVolume. This VM owns them. The simulator adopts the existing PVC."""
        meta = owner["metadata"]
        reference = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": meta["name"], "uid": meta["uid"]}
        references = [{**reference, "controller": True}]
        metadata = {"name": name, "ownerReferences": references, "finalizers": list(finalizers)}
        spec = data_volume_template(name)["spec"]
        volume = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": metadata, "spec": spec}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec["pvc"]}
        self._send("POST", f"{self._core}/persistentvolumeclaims", claim)
        self._send("POST", self._cdi, volume)

    def let_disk_go(self, name: str) -> None:
        """Remove all finalizers from a DataVolume and its PersistentVolumeClaim."""
        nothing = {"metadata": {"finalizers": None}}
        for path in (f"{self._cdi}/{name}", f"{self._core}/persistentvolumeclaims/{name}"):
            self._send("PATCH", path, nothing)

    def data_volumes(self) -> dict[str, dict[str, Any]]:
        return self._named(self._cdi)

    def claims(self) -> dict[str, dict[str, Any]]:
        return self._named(f"{self._core}/persistentvolumeclaims")

    def make_claim(self, name: str) -> dict[str, Any]:
        spec = data_volume_template(name)["spec"]["pvc"]
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        return self._send("POST", f"{self._core}/persistentvolumeclaims", body)

    def change_claim(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        return self._send("PATCH", f"{self._core}/persistentvolumeclaims/{name}", change)

    def revisions(self) -> dict[str, dict[str, Any]]:
        """The ControllerRevisions by name, without those of sets and those that KubeVirt creates at a start of a VM."""
        of_pools = f"{self._apps}?labelSelector=!vmherd.dev/template-hash"
        return {name: each for name, each in self._named(of_pools).items() if not name.startswith(START_REVISION)}

    def change_revision(self, name: str, change: dict[str, Any]) -> dict[str, Any]:
        return self._send("PATCH", f"{self._apps}/{name}", change)

    def wait_for_vms(self, *names: str, ready: bool = True, within_s: float = 30.0) -> dict[str, dict[str, Any]]:
        """Wait until exactly these VMs exist and none is terminating. With `ready`, wait until all are ready."""

        def there() -> bool:
            vms = self.vms()
            staying = all("deletionTimestamp" not in vm["metadata"] for vm in vms.values())
            return vms.keys() == set(names) and staying and (not ready or all(map(is_vm_ready, vms.values())))

        eventually(there, within_s=within_s, what=f"VMs {names}")
        return self.vms()

    def wait_for_ordinals(self, *ordinals: int, ready: bool = True, name: str = "pool") -> dict[str, dict[str, Any]]:
        return self.wait_for_vms(*(f"{name}-{ordinal}" for ordinal in ordinals), ready=ready)

    def wait_ready(self, replicas: int, *, name: str = "pool", within_s: float = 30.0) -> None:
        """Wait until the pool's status reports `replicas` VMs, all of which are ready and up to date."""

        def there() -> bool:
            pool = self.pool(name)
            status = pool.get("status") or {}
            counts = [status.get(field, 0) for field in ("replicas", "readyReplicas", "updatedReplicas")]
            return counts == [replicas] * 3 and status.get("observedGeneration") == pool["metadata"]["generation"]

        eventually(there, within_s=within_s, what=f"{replicas} of {replicas} ready in {name}")

    def wait_until_updated(self, replicas: int, *, name: str = "pool") -> None:
        """Wait until the pool's status reports `replicas` VMs, all of which are up to date. The VMs need not run."""

        def there() -> bool:
            pool = self.pool(name)
            status = pool.get("status") or {}
            seen = status.get("observedGeneration") == pool["metadata"]["generation"]
            return seen and status.get("updatedReplicas", 0) == status.get("replicas", 0) == replicas

        eventually(there, what=f"{replicas} of {replicas} updated in {name}")

    def specs_exactly(self, name: str = "pool") -> tuple[Any, list[Any]]:
        """The VM spec of a pool's template and the specs of all VMs. Numbers are strings as in the JSON."""

        def read(path: str) -> Any:
            return json.loads(self._admin.send("GET", path), parse_int=str, parse_float=str)

        template = read(f"{self._pools}/{name}")["spec"]["virtualMachineTemplate"]["spec"]
        return template, [vm["spec"] for vm in read(self._vms)["items"]]

    def hold_vm(self, name: str) -> None:
        """Add a foreign finalizer to a VM. A deleted VM then stays until `let_vm_go`."""
        self._change_hold(name, HOLD)

    def let_vm_go(self, name: str) -> None:
        """Remove the finalizer that `hold_vm` added."""
        self._change_hold(name)

    def _change_hold(self, name: str, *holds: str) -> None:
        def is_done() -> bool:
            vm = self.vm(name)
            finalizers = [*(each for each in finalizers_of(vm) if each != HOLD), *holds]
            meta = {"finalizers": finalizers, "resourceVersion": vm["metadata"]["resourceVersion"]}
            try:
                self.change_vm(name, {"metadata": meta})
            except Rejected:
                return False  # another client changed the VM
            return True

        eventually(is_done, what=f"the foreign finalizers of {name} are {holds}")

    def release(self) -> None:
        """Remove all finalizers of the pools and the VMs, so that they can be deleted without a controller."""
        for path in (self._pools, self._vms):
            for name in self._named(path):
                self._send("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}})

    def mark_vm(self, name: str, **marks: str) -> None:
        """Set annotations of a VM: `deletion_cost="5"` sets `vmherd.dev/deletion-cost` to `5`."""
        texts = {f"vmherd.dev/{mark.replace('_', '-')}": value for mark, value in marks.items()}
        self.change_vm(name, {"metadata": {"annotations": texts}})

    def wait_until_seen(self, *, name: str = "pool") -> None:
        """Wait until the controller has seen all earlier writes to VMs.

        The method creates another VM with the pool's finalizer, and waits until the controller has removed the
        finalizer.
        """
        witness = f"{name}-999999"
        self.make_vm(witness, labels={"app": "witness"}, finalizers=(FINALIZER,), template=vm_template(running=False))
        eventually(lambda: FINALIZER not in finalizers_of(self.vm(witness)), what="the earlier writes are seen")
        self.delete_vm(witness)
        eventually(lambda: witness not in self.vms(), what="the witness is gone")

    def vms_created(self, since: int | None = None) -> Counter[str]:
        """The number of the controller's successful create requests for each VM."""
        return self._done("create", 201, since)

    def vms_deleted(self, since: int | None = None) -> Counter[str]:
        """The number of the controller's successful delete requests for each VM."""
        return self._done("delete", 200, since)

    def alive_vms(self) -> set[str]:
        """The names of the VMs without a deletion timestamp."""
        return {name for name, vm in self.vms().items() if "deletionTimestamp" not in vm["metadata"]}

    def asked_of_vms(self, verb: str) -> Counter[tuple[str, int]]:
        """The number of requests of the controller with this verb, by VM and status code."""
        records = self.requests(verb)
        return Counter((each.name, each.code) for each in records if each.resource == "virtualmachines")

    def told(self, reason: str) -> Counter[str]:
        """The number of Events with this reason for each pool, repeats included."""
        counted: Counter[str] = Counter()
        for event in self.events():
            if event["reason"] == reason and event["involvedObject"]["kind"] == "VirtualMachinePool":
                counted[event["involvedObject"]["name"]] += event.get("count") or 1
        return counted

    def _done(self, verb: str, code: int, since: int | None) -> Counter[str]:
        records = self.requests(verb, since=since)
        return Counter(each.name for each in records if each.resource == "virtualmachines" and each.code == code)

    def _named(self, path: str) -> dict[str, dict[str, Any]]:
        return {item["metadata"]["name"]: item for item in self._send("GET", path)["items"]}


def finalizers_of(item: dict[str, Any]) -> list[str]:
    return item["metadata"].get("finalizers") or []


def uids(items: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: item["metadata"]["uid"] for name, item in items.items()}


def is_vm_ready(vm: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in (vm.get("status") or {}).get("conditions") or ())


@contextmanager
def simulator(plane: ControlPlane, *flags: str) -> Iterator[None]:
    """Run the simulator of VMs and VMIs while the block runs. It shortens KubeVirt's backoff to a twentieth."""
    log = plane.logs / f"simulator-{uuid.uuid4().hex[:6]}.log"
    arguments = [f"--kubeconfig={plane.kubeconfig}", "--time-scale=0.05", *flags]
    # A process group of its own: Ctrl-C ends the tests first.
    process = ForkedProgram("sandbox.simulator", arguments, log, own_group=True)
    try:
        yield
        ended = process.poll()
        assert ended is None, f"the simulator ended with {ended}:\n{log.read_text()[-3000:]}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def pool_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """The control plane for the tests of pools. A simulator runs its VMs."""
    with running_plane(control_plane_binaries) as plane, simulator(plane):
        yield plane


@pytest.fixture(scope="session")
def pool_controller(pool_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """The shared controller for pools. Tests that stop or start a controller use another control plane."""
    with controller_process(pool_plane, tmp_path_factory.mktemp("pool-controller"), *PATIENT_LEASE) as program:
        yield program


@contextmanager
def new_pool_namespace(plane: ControlPlane) -> Iterator[PoolNamespace]:
    with new_namespace(plane) as name:
        yield PoolNamespace(plane, name)


@pytest.fixture
def pools(pool_plane: ControlPlane, pool_controller: ControllerProcess) -> Iterator[PoolNamespace]:
    """The test's namespace. The shared controller and the simulator work on its objects."""
    assert pool_controller.working
    with new_pool_namespace(pool_plane) as pools:
        yield pools
