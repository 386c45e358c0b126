"""A test's namespace on a real control plane: creates, changes and reads its objects as the administrator.

`SetNamespace` and `PoolNamespace` have the same methods for their kind. Both have the VMs, VMIs and disks around it.
"""

import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.audit import AuditRecord, read_records
from sandbox.controlplane import ControlPlane
from tests.barrier import TIMER_S
from tests.cluster import Kubectl, new_namespace
from tests.controlplane import documents
from tests.controlplane.objects import Objects
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually, reacts

N = TypeVar("N", bound="Namespace")

FORBIDDEN = (403, 422)
"""The status codes of a refusal by a quota and by an admission policy."""


class Namespace(ABC):
    """One namespace. Methods without the name of a kind are for sets or for pools: see the subclasses."""

    kind: str
    resource: str
    """The name of the kind for kubectl."""

    plural: str
    version: str
    group: str
    members: str
    """The resource of the members: VMIs of a set, VMs of a pool."""

    name: str
    """The name of an object if a test gives no name."""

    uncounted: frozenset[str]
    """The resources whose requests `requests` leaves out."""

    revision_selector: str

    def __init__(
        self, plane: ControlPlane, namespace: str, controller: ControllerProcess | None = None, *, group: str = ""
    ) -> None:
        """`controller` is the controller that `settle` waits for."""
        self.plane = plane
        self.controller = controller
        self.namespace = namespace
        self.group = group or self.group
        self.kubectl = Kubectl(plane.kubeconfig, namespace)
        self.since = plane.audit_position()
        self.objects = self.all_of(self.plural, f"{self.group}/{self.version}")
        self.revisions = self.all_of("controllerrevisions", "apps/v1", self.revision_selector)
        self.vms = self.all_of("virtualmachines")
        self.vmis = self.all_of("virtualmachineinstances")
        self.data_volumes = self.all_of("datavolumes", "cdi.kubevirt.io/v1beta1")
        self.claims = self.all_of("persistentvolumeclaims", "v1")
        self.quotas = self.all_of("resourcequotas", "v1")

    def all_of(self, resource: str, version: str = "kubevirt.io/v1", selector: str = "") -> Objects:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        return Objects(self.admin, f"{root}/namespaces/{self.namespace}/{resource}", selector)

    @property
    def admin(self) -> Admin:
        return self.kubectl.admin

    def _as(self, other: N) -> N:
        """The same namespace for another kind. It counts the same requests."""
        other.since = self.since
        return other

    # The kind of this namespace

    @abstractmethod
    def document(self, replicas: int, **fields: Any) -> documents.Document: ...

    def make(
        self, replicas: int = 3, *, annotations: dict[str, str] | None = None, **fields: Any
    ) -> documents.Document:
        """Create a set or a pool. `fields` are the keywords of its document in `tests.controlplane.documents`."""
        metadata = {"annotations": annotations or {}, "finalizers": list(fields.pop("finalizers", ()))}
        return self.objects.make(self.document(replicas, metadata=metadata, **{"name": self.name, **fields}))

    def read(self, name: str = "") -> documents.Document:
        return self.objects.get(name or self.name)

    def change(self, change: documents.Document) -> documents.Document:
        """Apply a JSON merge patch to the set or pool."""
        return self.objects.change(self.name, change)

    def scale(self, replicas: int) -> documents.Document:
        return self.change({"spec": {"replicas": replicas}})

    def delete(self, *, cascade: str = "background", wait: bool = True) -> None:
        """Delete the set or pool with kubectl, and wait until it is gone."""
        flags = (f"--cascade={cascade}", "--timeout=60s" if wait else "--wait=false")
        self.kubectl("delete", self.resource, self.name, *flags)

    def exists(self) -> bool:
        return self.name in self.objects()

    def status(self, name: str = "") -> documents.Document:
        return self.read(name).get("status") or {}

    def condition(self, type_: str, *, name: str = "") -> documents.Document | None:
        return documents.condition_of(self.read(name), type_)

    def pause(self) -> None:
        self.change({"spec": {"paused": True}})
        reacts(lambda: self.condition("ReplicaPaused"), what="the pause")

    def resume(self) -> None:
        self.change({"spec": {"paused": False}})

    def wait_ready(self, replicas: int, *, name: str = "", within_s: float = 30.0) -> None:
        """Wait until the status reports `replicas` members, all of which are ready and up to date."""
        self._wait_for_counts(replicas, "replicas", "readyReplicas", "updatedReplicas", name=name, within_s=within_s)

    def wait_until_updated(self, replicas: int, *, name: str = "") -> None:
        """Wait until the status reports `replicas` members, all of which are up to date. They need not run."""
        self._wait_for_counts(replicas, "replicas", "updatedReplicas", name=name, within_s=30.0)

    def _wait_for_counts(self, replicas: int, *fields: str, name: str, within_s: float) -> None:
        def there() -> bool:
            found = self.read(name)
            return documents.is_observed(found) and all(found["status"].get(field, 0) == replicas for field in fields)

        eventually(there, within_s=within_s, what=f"{replicas} in {', '.join(fields)} of {name or self.name}")

    def told(self, reason: str) -> Counter[str]:
        """The number of Events with this reason for each set or pool, repeats included."""
        counted: Counter[str] = Counter()
        for event in self.events():
            if event["reason"] == reason and event["involvedObject"]["kind"] == self.kind:
                counted[event["involvedObject"]["name"]] += event.get("count") or 1
        return counted

    # The objects around it

    def make_vm(self, name: str, *, template: documents.Document | None = None, **metadata: Any) -> documents.Document:
        return self.vms.make(documents.vm_document(name, template=template, **metadata))

    def make_vmi(self, name: str, **metadata: Any) -> documents.Document:
        return self.vmis.make(documents.vmi_document(name, **metadata))

    def make_disk(self, name: str, *, owner: documents.Document, finalizers: tuple[str, ...] = ()) -> None:
        """Create a PVC and then its DataVolume. This VM owns them. The simulator adopts the existing PVC."""
        metadata = {"ownerReferences": [documents.reference_to(owner)], "finalizers": list(finalizers)}
        self.claims.make(documents.claim_document(name, **metadata))
        self.data_volumes.make(documents.data_volume_document(name, **metadata))

    def storage(self) -> tuple[dict[str, str], dict[str, str]]:
        """The UIDs of the DataVolumes and of the PVCs, by their names."""
        return documents.uids(self.data_volumes()), documents.uids(self.claims())

    def alive(self) -> dict[str, documents.Document]:
        """The VMIs without a deletion timestamp, by name."""
        return {name: vmi for name, vmi in self.vmis().items() if not documents.is_leaving(vmi)}

    def play(self, name: str) -> None:
        """Let a VMI run and be ready, as KubeVirt writes it."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        self.vmis.change(name, {"status": {"phase": "Running", "conditions": [ready], "nodeName": "node01"}})

    def play_all(self) -> None:
        for name in self.alive():
            self.play(name)

    def events(self) -> list[documents.Document]:
        return list(self.all_of("events", "v1")().values())

    def messages(self, reason: str) -> list[str]:
        return [event["message"] for event in self.events() if event["reason"] == reason]

    def reasons(self) -> Counter[str]:
        """The number of Events for each reason, repeats included."""
        counted: Counter[str] = Counter()
        for event in self.events():
            counted[event["reason"]] += event.get("count") or 1
        return counted

    # The controller

    def settle(self, *, events: bool = False, no_timer_within_s: float = TIMER_S) -> None:
        """Wait until the controller has seen all writes and has nothing to do here. See `tests.barrier`."""
        assert self.controller is not None, "the namespace has no controller"
        self.controller.settle(self.namespace, self.admin, events=events, no_timer_within_s=no_timer_within_s)

    @property
    def passes(self) -> int:
        assert self.controller is not None, "the namespace has no controller"
        return self.controller.passes(self.namespace)

    def requests(self, *verbs: str, since: int | None = None, resource: str = "") -> list[AuditRecord]:
        """The requests of controllers in this namespace since the start of the test, or since this position in the
        audit log. With `resource`, only such requests.
        """
        self._wait_for_audit_log()
        position = self.since if since is None else since
        return [
            record
            for record in read_records(self.plane.audit_log, position)
            if record.user_agent.startswith("vmherd/")
            and record.namespace == self.namespace
            and (record.resource == resource if resource else record.resource not in self.uncounted)
            and (not verbs or record.verb in verbs)
        ]

    def _wait_for_audit_log(self) -> None:
        """The audit log shows a request a moment after its answer. So wait until it shows a request of this method."""
        position, marker = self.plane.audit_position(), f"marker-{uuid.uuid4().hex}"
        try:
            self.all_of("configmaps", "v1").get(marker)
        except Unanswered:
            return  # a stopped server has written all
        except Rejected:
            eventually(
                lambda: any(each.name == marker for each in read_records(self.plane.audit_log, position)),
                what="the log",
            )

    def answers(self, verb: str) -> Counter[tuple[str, int]]:
        """The number of the controller's requests for members with this verb, by member and status code."""
        return Counter((each.name, each.code) for each in self.requests(verb, resource=self.members))

    def created(self) -> Counter[str]:
        """The number of the controller's successful create requests for each member."""
        return Counter({name: count for (name, code), count in self.answers("create").items() if code == 201})

    def deleted(self) -> Counter[str]:
        """The number of the controller's successful delete requests for each member."""
        return Counter({name: count for (name, code), count in self.answers("delete").items() if code == 200})

    def refusal(self, method: str, path: str, body: documents.Document) -> str:
        """The server's message if it forbids a dry run of this request, or "" if nothing forbids the request."""
        try:
            Objects(self.admin, path).send(method, query="?dryRun=All", body=body)
        except Rejected as refused:
            if refused.status in FORBIDDEN:
                return str(refused)
            raise
        return ""


class SetNamespace(Namespace):
    """A namespace with replica sets."""

    kind, resource, name = "VirtualMachineInstanceReplicaSet", "vmirs", "herd"
    plural, version, group = "virtualmachineinstancereplicasets", "v1", "kubevirt.io"
    members = "virtualmachineinstances"
    uncounted = frozenset({"events", "controllerrevisions"})
    revision_selector = "vmherd.dev/template-hash"

    @property
    def pools(self) -> "PoolNamespace":
        return self._as(PoolNamespace(self.plane, self.namespace, self.controller))

    def document(self, replicas: int, **fields: Any) -> documents.Document:
        return documents.set_document(replicas, group=self.group, **fields)

    def wait_for(self, count: int, *, within_s: float = 30.0) -> dict[str, documents.Document]:
        """Wait until `count` VMIs are alive and the set's status reports that number."""

        def there() -> bool:
            return len(self.alive()) == count and self.status().get("replicas", 0) == count

        eventually(there, within_s=within_s, what=f"{count} VMIs")
        return self.alive()


class PoolNamespace(Namespace):
    """A namespace with pools. A simulator runs their VMs."""

    kind, resource, name = "VirtualMachinePool", "vmpool", "pool"
    plural, version, group = "virtualmachinepools", "v1beta1", "pool.kubevirt.io"
    members = "virtualmachines"
    uncounted = frozenset({"events"})
    revision_selector = "!vmherd.dev/template-hash"

    @property
    def sets(self) -> SetNamespace:
        return self._as(SetNamespace(self.plane, self.namespace, self.controller))

    def document(self, replicas: int, **fields: Any) -> documents.Document:
        return documents.pool_document(replicas, group=self.group, **fields)

    def change_template(self, template: documents.Document, *, name: str = "") -> documents.Document:
        step = {"op": "replace", "path": "/spec/virtualMachineTemplate", "value": template}
        return self.objects.steps(name or self.name, step)

    def wait_for_vms(self, *names: str, ready: bool = True, within_s: float = 30.0) -> dict[str, documents.Document]:
        """Wait until exactly these VMs exist and none is terminating. With `ready`, wait until all are ready."""

        def there() -> bool:
            vms = self.vms()
            staying = not any(map(documents.is_leaving, vms.values()))
            return vms.keys() == set(names) and staying and (not ready or all(map(documents.is_ready, vms.values())))

        eventually(there, within_s=within_s, what=f"VMs {names}")
        return self.vms()

    def wait_for_ordinals(
        self, *ordinals: int, ready: bool = True, name: str = "pool"
    ) -> dict[str, documents.Document]:
        return self.wait_for_vms(*(f"{name}-{ordinal}" for ordinal in ordinals), ready=ready)

    def release(self) -> None:
        """Remove all finalizers of the pools and the VMs, so that they can be deleted without a controller."""
        for objects in (self.objects, self.vms):
            for name in objects():
                objects.set_finalizers(name)


@contextmanager
def new_pool_namespace(
    plane: ControlPlane, controller: ControllerProcess | None = None, **options: Any
) -> Iterator[PoolNamespace]:
    with new_namespace(plane) as name:
        yield PoolNamespace(plane, name, controller, **options)


@contextmanager
def controller_for(namespace: Namespace, directory: Path, *flags: str, **options: Any) -> Iterator[ControllerProcess]:
    """Run a controller while the block runs. The namespace waits for this controller."""
    with controller_process(namespace.plane, directory, *flags, **options) as program:
        namespace.controller = program
        yield program
