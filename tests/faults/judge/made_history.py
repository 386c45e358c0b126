"""Histories that a test makes by hand: a small server that stores objects and notes observations and requests.

    made = Made()
    owner = made.create(replica_set(2))
    made.create(vmi("herd-a", owner), by=OURS)
    history = made.history()

The argument `by` is the user agent of the client.
"""

import copy
from typing import Any, Final

from tests.controlplane.documents import reference_to
from tests.fakes.patches import merge_patch
from tests.faults.judge.history import History, Observation, Request
from tests.faults.judge.states import FINALIZER, OWNERS, POOL, REVISION, SET, VM, VMI, Object
from tests.faults.resources import RESOURCE_OF

START: Final = 1_000_000.0
STEP_S: Final = 0.01
OURS, USER, SIMULATOR = "vmherd/1 (test)", "kubectl/1", "vmherd-simulator"
COLLECTOR: Final = "kube-controller-manager"
LABELS: Final = {"app": "herd"}
API: Final = {SET: "kubevirt.io/v1", POOL: "pool.kubevirt.io/v1beta1", VM: "kubevirt.io/v1", VMI: "kubevirt.io/v1"}


class Made:
    """A server. Each write takes `STEP_S` seconds."""

    def __init__(self) -> None:
        self.now = START
        self.revision = 0
        self.objects: dict[tuple[str, str], Object] = {}
        self.observations: list[Observation] = []
        self.requests: list[Request] = []
        self._owner = "", ""

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def get(self, kind: str, name: str) -> Object:
        return self.objects[kind, name]

    @property
    def owner(self) -> Object:
        """The set or pool that was created last."""
        return self.objects[self._owner]

    def create(self, item: Object, *, by: str = USER, **more: Any) -> Object:
        body = copy.deepcopy(item)
        self.revision += 1
        stored = copy.deepcopy(item)
        stored["metadata"] |= {"uid": f"uid-{self.revision}", "namespace": "n", "generation": 1}
        self._store("ADDED", stored)
        if stored["kind"] in OWNERS:
            self._owner = stored["kind"], stored["metadata"]["name"]
        self._note("create", stored, by, body, 201, **more)
        return stored

    def patch(
        self, kind: str, name: str, change: Any, *, by: str = USER, body: Any = None, subresource: str = "", **more: Any
    ) -> Object:
        """Merge a change. `body` is the body in the audit log. The default is the change, with the UID and the
        resourceVersion of the object.
        """
        before = self.objects[kind, name]
        after = merge_patch(copy.deepcopy(before), change)
        if body is None:
            own = {"uid": before["metadata"]["uid"], "resourceVersion": before["metadata"]["resourceVersion"]}
            body = {**change, "metadata": {**own, **change.get("metadata", {})}}
        if after != before:
            self.revision += 1
            if after.get("spec") != before.get("spec"):
                after["metadata"]["generation"] += 1
            gone = "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers")
            self._store("DELETED" if gone else "MODIFIED", after)
        self._note("patch", after, by, body, 200, subresource=subresource, **more)
        return after

    def delete(self, kind: str, name: str, *, by: str = USER, uid: str | None = None, **more: Any) -> None:
        """Delete an object. It stays with a deletionTimestamp while it has finalizers."""
        item = copy.deepcopy(self.objects[kind, name])
        options = {"preconditions": {"uid": item["metadata"]["uid"] if uid is None else uid}} if uid != "" else {}
        status = {"kind": "Status", "metadata": {}, "details": {"uid": item["metadata"]["uid"]}}
        if "deletionTimestamp" not in item["metadata"]:
            self.revision += 1
            if item["metadata"].get("finalizers"):
                item["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self._store("MODIFIED", item)
                return self._note("delete", item, by, options, 200, **more)
            self._store("DELETED", item)
        return self._note("delete", item, by, options, 200, answer=status, **more)

    def read(self, kind: str, name: str, *, by: str = OURS, verb: str = "get", code: int = 200) -> None:
        item = self.objects.get((kind, name), {"kind": kind, "metadata": {"name": name}})
        self._note(verb, item, by, None, code, answer=None)

    def fail(
        self, verb: str, kind: str, name: str, code: int, *, by: str = OURS, body: Any = None, **more: Any
    ) -> None:
        item = {"kind": kind, "metadata": {"name": name}}
        answer = {"kind": "Status", "metadata": {}, **more.pop("answer", {})}
        self._note(verb, item, by, body, code, answer=answer, **more)

    def lease(self, holder: str, *, credential: str, name: str = "vmherd") -> None:
        """A controller writes the lease."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
        item = {"kind": "Lease", "metadata": {"name": name, "namespace": "n"}, "spec": spec}
        self._note("update", item, OURS, item, 200, credential=credential)

    def history(self) -> History:
        return History(tuple(self.observations), tuple(self.requests))

    def _store(self, type_: Any, item: Object) -> None:
        item["metadata"]["resourceVersion"] = str(self.revision)
        key = item["kind"], item["metadata"]["name"]
        if type_ == "DELETED":
            del self.objects[key]
        else:
            self.objects[key] = item
        seen = copy.deepcopy(item)
        self.observations.append(Observation(self.revision, item["kind"], type_, seen, self.now + STEP_S))

    def _note(self, verb: str, item: Object, by: str, body: Any, code: int, **more: Any) -> None:
        self.now += STEP_S
        answer = more.pop("answer", copy.deepcopy(item))
        user = more.pop(
            "user", "system:serviceaccount:kube-system:generic-garbage-collector" if by == COLLECTOR else ""
        )
        resource = RESOURCE_OF.get(item["kind"], "leases")
        request = Request(
            time=self.now - STEP_S,
            answered=self.now,
            verb=verb,
            resource=resource,
            name=item["metadata"]["name"],
            code=code,
            user_agent=by,
            namespace="n",
            user=user,
            body=body,
            answer=answer,
            **more,
        )
        self.requests.append(request)


def replica_set(
    replicas: int = 2, name: str = "herd", *, annotations: dict[str, str] | None = None, **spec: Any
) -> Object:
    template = {"metadata": {"labels": dict(LABELS)}, "spec": {"domain": {}}}
    body = {"replicas": replicas, "selector": {"matchLabels": dict(LABELS)}, "template": template, **spec}
    return _item(SET, name, body, annotations=annotations)


def pool(replicas: int = 2, name: str = "pool", *, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    template = {
        "metadata": {"labels": dict(LABELS)},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": dict(LABELS)}, "spec": {"domain": {}}}},
    }
    body = {"replicas": replicas, "selector": {"matchLabels": dict(LABELS)}, "virtualMachineTemplate": template, **spec}
    return _item(POOL, name, body, annotations=annotations, finalizers=[FINALIZER])


def vmi(name: str, owner: Object | None = None, *, labels: dict[str, str] | None = None, **more: Any) -> Object:
    item = _item(VMI, name, {"domain": {}}, labels={**LABELS, "vmherd.dev/template-hash": "h"} | (labels or {}), **more)
    return _owned(item, owner)


def vm(name: str, owner: Object | None = None, *, labels: dict[str, str] | None = None, **more: Any) -> Object:
    """A VM of a pool with the pool's finalizer."""
    revision = "kubevirt.io/vm-pool-revision-name"
    inner = {"metadata": {"labels": {**LABELS, revision: "pool-1"}}, "spec": {"domain": {}}}
    spec = {"runStrategy": "Always", "template": inner}
    more.setdefault("finalizers", [FINALIZER])
    return _owned(_item(VM, name, spec, labels={**LABELS, revision: "pool-1"} | (labels or {}), **more), owner)


def revision_of(owner: Object, name: str = "pool-1") -> Object:
    item = _item(REVISION, name, None)
    return _owned({**item, "data": copy.deepcopy(owner["spec"]), "revision": 1}, owner)


def set_revision_of(owner: Object, hashed: str) -> Object:
    """The revision of a set's template. Its VMIs have the hash of the template."""
    item = _item(REVISION, f"herd-{hashed}", None, labels={"vmherd.dev/template-hash": hashed})
    return _owned({**item, "data": {"template": copy.deepcopy(owner["spec"]["template"])}, "revision": 1}, owner)


def disk(kind: str, name: str, *owners: Object) -> Object:
    item = _item(kind, name, {})
    references = [reference_to(owner) for owner in owners]
    item["metadata"] |= {"ownerReferences": references} if references else {}
    return item


def ready(is_ready: bool = True, **status: Any) -> Object:
    """A change that sets the Ready condition."""
    condition = {"type": "Ready", "status": str(is_ready)}
    return {"status": {"phase": "Running", "conditions": [condition], **status}}


def _item(kind: str, name: str, spec: Any, **metadata: Any) -> Object:
    own = {key: value for key, value in metadata.items() if value}
    item = {"apiVersion": API.get(kind, "v1"), "kind": kind, "metadata": {"name": name, **own}}
    return {**item, "spec": spec} if spec is not None else item


def _owned(item: Object, owner: Object | None) -> Object:
    if owner is not None:
        item["metadata"]["ownerReferences"] = [reference_to(owner)]
    return item
