"""A cluster for hostile input: kinds without validation, and one controller for all tests of a file.

A second namespace, called the neighbour, contains one well-behaved set. Each test checks that the controller still
serves this set.
"""

from __future__ import annotations

import json
import resource
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from informers.resource import cut_deep_values
from sandbox.admin import Admin
from sandbox.audit import AuditRecord, read_records
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import eventually
from tests.manifests import documents

GROUP, POOL_GROUP = "hostile.vmherd.dev", "pool.hostile.vmherd.dev"
SET, POOL = "virtualmachineinstancereplicasets", "virtualmachinepools"
VM, VMI = "virtualmachines", "virtualmachineinstances"
REVISIONS, BUDGETS = "controllerrevisions", "poddisruptionbudgets"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
CHECKED = {
    SET: "/apis/kubevirt.io/v1",
    POOL: "/apis/pool.kubevirt.io/v1beta1",
    **dict.fromkeys((VM, VMI), "/apis/kubevirt.io/v1"),
    **dict.fromkeys(("persistentvolumeclaims", "configmaps", "events"), "/api/v1"),
    REVISIONS: "/apis/apps/v1",
    BUDGETS: "/apis/policy/v1",
    "leases": "/apis/coordination.k8s.io/v1",
}
"""The API of each resource, with the project's definitions of sets and pools."""

PATHS = {**CHECKED, SET: f"/apis/{GROUP}/v1", POOL: f"/apis/{POOL_GROUP}/v1beta1"}
"""The API of each resource, with the definitions of sets and pools without validation."""

KINDS = {
    SET: "VirtualMachineInstanceReplicaSet",
    POOL: "VirtualMachinePool",
    VM: "VirtualMachine",
    VMI: "VirtualMachineInstance",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    REVISIONS: "ControllerRevision",
    BUDGETS: "PodDisruptionBudget",
    "configmaps": "ConfigMap",
    "leases": "Lease",
}
MERGE = "application/merge-patch+json"
QUIET_S = 3.0
"""A controller that will do nothing for one namespace for this time is at rest there."""

SERVED_WITHIN_S = 30.0
"""The neighbour is served within this time, also on a busy machine. At rest, it takes less than a second."""

FLAGS = ("--replicaset-group", GROUP, "--pool-group", POOL_GROUP)
LEASE = "hostile"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vmherd-system/leases"
RBAC, REVIEW = "rbac.authorization.k8s.io", "authorization.k8s.io"

ADDRESS_SPACE = 2_500_000_000
"""The most memory, in bytes, that a controller may map. It needs less than a tenth of it."""


def vmi_template(labels: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": labels or {"app": "x"}}, "spec": {"domain": {}, **spec}}


def vm_template(labels: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"runStrategy": "Always", "template": vmi_template(labels), **spec}
    return {"metadata": {"labels": labels or {"app": "x"}}, "spec": spec}


class Tenant:
    """One namespace and its objects. The bodies may be of any form.

    Without a kubeconfig, the administrator writes. `paths` has the API of each resource.
    """

    def __init__(
        self, plane: ControlPlane, name: str, *, kubeconfig: Path | None = None, paths: Mapping[str, str] = PATHS
    ) -> None:
        self.plane, self.name, self.paths = plane, name, paths
        self.admin = Admin(kubeconfig or plane.kubeconfig)
        self.kubectl = Kubectl(kubeconfig or plane.kubeconfig, name)
        self.since = plane.audit_position()

    def create(self, kind: str, name: str, spec: Any = None, *, meta: Any = None, **fields: Any) -> dict[str, Any]:
        version = self.paths[kind].removeprefix("/apis/").removeprefix("/api/")
        body = {"apiVersion": version, "kind": KINDS[kind], "metadata": {"name": name, **(meta or {})}, **fields}
        if spec is not None:
            body["spec"] = spec
        return self.send("POST", kind, "", body)

    def make_set(self, name: str = "herd", replicas: Any = 1, *, meta: Any = None, **spec: Any) -> dict[str, Any]:
        whole = {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": vmi_template(), **spec}
        return self.create(SET, name, whole, meta=meta)

    def make_pool(self, name: str = "pool", replicas: Any = 1, *, meta: Any = None, **spec: Any) -> dict[str, Any]:
        selector = {"matchLabels": {"app": "x"}}
        whole = {"replicas": replicas, "selector": selector, "virtualMachineTemplate": vm_template(), **spec}
        return self.create(POOL, name, whole, meta=meta)

    def patch(self, kind: str, name: str, change: dict[str, Any]) -> dict[str, Any]:
        return self.send("PATCH", kind, name, change)

    def replace_spec(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        steps = json.dumps([{"op": "replace", "path": "/spec", "value": spec}]).encode()
        self.admin.send("PATCH", self.path(kind, name), steps, "application/json-patch+json")

    def delete(self, kind: str, name: str) -> None:
        self.admin.send("DELETE", self.path(kind, name))

    def list(self, kind: str) -> dict[str, dict[str, Any]]:
        items = json.loads(cut_deep_values(self.admin.send("GET", self.path(kind))))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def get(self, kind: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(self.path(kind, name))
        return found

    def children(self, owner: str) -> list[str]:
        """The names of the VMs and VMIs that the set or pool with this name controls and that are not terminating."""
        return [
            name
            for kind in (VMI, VM)
            for name, item in self.list(kind).items()
            if "deletionTimestamp" not in item["metadata"]
            and any(each["name"] == owner and each.get("controller") for each in owners_of(item))
        ]

    def reasons(self) -> dict[str, Counter[str]]:
        """For each object with Events: the number of Events for each reason, repeats included."""
        found: dict[str, Counter[str]] = {}
        for event in self.admin.get(self.path("events"))["items"]:
            counted = found.setdefault(event["involvedObject"]["name"], Counter())
            counted[event["reason"]] += event.get("count") or 1
        return found

    def requests(self, since: int | None = None) -> list[AuditRecord]:
        """The requests of the controller in this namespace, including the requests for Events."""
        records = read_records(self.plane.audit_log, self.since if since is None else since)
        return [each for each in records if each.user_agent.startswith("vmherd/") and each.namespace == self.name]

    def path(self, kind: str, name: str = "") -> str:
        return f"{self.paths[kind]}/namespaces/{self.name}/{kind}" + (f"/{name}" if name else "")

    def send(self, method: str, kind: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        encoded = json.dumps(body).encode()
        content_type = MERGE if method == "PATCH" else "application/json"
        answer: dict[str, Any] = json.loads(self.admin.send(method, self.path(kind, name), encoded, content_type))
        return answer


def owners_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    return item["metadata"].get("ownerReferences") or []


class HostileCluster:
    """The control plane, the controller, and the neighbour: a namespace with one well-behaved set.

    `paths` has the API of each resource. `lease` is the name of the controller's lease.
    """

    def __init__(
        self, plane: ControlPlane, directory: Path, *flags: str, paths: Mapping[str, str] = PATHS, lease: str = LEASE
    ) -> None:
        self.plane, self.paths, self.lease = plane, paths, lease
        self._directory, self._flags, self._running = directory, (*flags, "--leader-election-id", lease), ExitStack()
        self.start()
        self.neighbour = self.tenant(f"neighbour-{lease}")
        self.neighbour.make_set("calm", 1)
        self._wanted = 1
        eventually(lambda: len(self.neighbour.children("calm")) == 1, what="the neighbour's set works")

    def start(self) -> None:
        """Start the controller, with a limit of its memory: a fault that needs all of it ends only this process."""
        self.program = self._running.enter_context(controller_process(self.plane, self._directory, *self._flags))
        resource.prlimit(self.program.process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    def stop(self) -> None:
        """Kill the controller."""
        self._running.close()

    def restart(self) -> None:
        """Start a new controller, which leads at once, and does not wait for the lease of the killed one."""
        self.stop()
        Admin(self.plane.kubeconfig).send("DELETE", f"{LEASES}/{self.lease}")
        self.start()

    def standby(self) -> AbstractContextManager[ControllerProcess]:
        """A second controller that waits for the same lease."""
        return controller_process(self.plane, self._directory, *self._flags, wait=False)

    def tenant(self, name: str = "", *, edits: bool = False) -> Tenant:
        """Create a namespace. The administrator writes in it, or a user with the role `edit` of this namespace."""
        name = name or f"hostile-{uuid.uuid4().hex[:8]}"
        body = json.dumps({"metadata": {"name": name}}).encode()
        Admin(self.plane.kubeconfig).send("POST", "/api/v1/namespaces", body, "application/json")
        kubeconfig = editor(self.plane, name) if edits else None
        return Tenant(self.plane, name, kubeconfig=kubeconfig, paths=self.paths)

    def serve_the_neighbour(self) -> None:
        """Scale the neighbour's set. If its VMIs do not exist soon, the test fails."""
        self._wanted = 3 - self._wanted
        self.neighbour.patch(SET, "calm", {"spec": {"replicas": self._wanted}})
        eventually(
            lambda: len(self.neighbour.children("calm")) == self._wanted,
            within_s=SERVED_WITHIN_S,
            what="the neighbour is served",
        )

    def rests(self, tenant: Tenant) -> None:
        """Wait until the controller has nothing to do in the namespace for a while. The pauses between the tries of a
        failing request grow, so they soon exceed this time. A hot loop never rests.
        """
        self.program.settle(tenant.name, tenant.admin, no_timer_within_s=QUIET_S)

    def check(self) -> None:
        """The controller is alive, and no reconciliation has raised an unexpected exception."""
        assert self.program.working
        # After a pause of the process, the endpoint answers for a moment that the event loop was blocked.
        eventually(lambda: self.program.health("healthz")[0] == 200, what="the controller is healthy")
        faults = [line["exception"][-600:] for line in self.program.lines(level="error") if "exception" in line]
        assert faults == [], faults


def unchecked(definition: Path, group: str) -> dict[str, Any]:
    """The definition of a kind in another group and without validation."""
    document: dict[str, Any] = yaml.safe_load(definition.read_text())
    spec = document["spec"]
    document["metadata"]["name"] = f"{spec['names']['plural']}.{group}"
    spec["group"] = group
    spec["names"] |= {"shortNames": [], "categories": []}
    for version in spec["versions"]:
        properties = {"spec": ANYTHING, "status": ANYTHING}
        version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    return document


@contextmanager
def hostile_cluster(plane: ControlPlane, directory: Path, *flags: str) -> Iterator[HostileCluster]:
    """Define the kinds without validation, and run one controller for them while the block runs."""
    kubectl = Kubectl(plane.kubeconfig)
    definitions = [unchecked(documents.REPLICASETS, GROUP), unchecked(documents.POOLS, POOL_GROUP)]
    kubectl.apply(*definitions)
    for each in definitions:
        kubectl("wait", "--for=condition=Established", "crd", each["metadata"]["name"])
    cluster = HostileCluster(plane, directory, *FLAGS, *flags)
    try:
        yield cluster
    finally:
        cluster.stop()


def editor(plane: ControlPlane, namespace: str) -> Path:
    """Give a new user the role `edit` in this namespace only, and return its kubeconfig.

    The release of the controller adds its kinds to this role, as KubeVirt does with VMs and VMIs. The tests add the
    kinds without validation.
    """
    user = f"user-of-{namespace}"
    groups = ["kubevirt.io", GROUP, POOL_GROUP]
    resources = [VM, VMI, SET, POOL, f"{SET}/scale", f"{POOL}/scale"]
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    metadata = {"name": "kubevirt-edit", "labels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}
    role = {"metadata": metadata, "rules": [{"apiGroups": groups, "resources": resources, "verbs": verbs}]}
    binding = {
        "metadata": {"name": user, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": RBAC}],
    }
    version = f"{RBAC}/v1"
    kubectl = Kubectl(plane.kubeconfig)
    kubectl.apply({"apiVersion": version, "kind": "ClusterRole", **role})
    kubectl.apply({"apiVersion": version, "kind": "RoleBinding", **binding})
    kubeconfig = plane.write_kubeconfig(plane.directory / f"{user}.kubeconfig", user)
    admin = Admin(kubeconfig)
    for group, plural in (("kubevirt.io", VM), ("pool.kubevirt.io", POOL), (POOL_GROUP, POOL), ("policy", BUDGETS)):
        eventually(partial(may, admin, "create", group, plural, namespace), what=f"{user} may create {plural}")
    return kubeconfig


def may(admin: Admin, verb: str, group: str, plural: str, namespace: str) -> bool:
    """Whether the user of this client may do this in the namespace."""
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    head = {"apiVersion": f"{REVIEW}/v1", "kind": "SelfSubjectAccessReview"}
    body = json.dumps({**head, "spec": {"resourceAttributes": attributes}}).encode()
    answer = json.loads(admin.send("POST", f"/apis/{REVIEW}/v1/selfsubjectaccessreviews", body, "application/json"))
    return bool(answer["status"]["allowed"])
