"""Simulated VMs with their VMIs and disks on the fake API server. The simulator does one step after the other, in
virtual time.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import msgspec

from controller.kubevirt.resources import CONTROLLER_REVISIONS
from informers.meta import ObjectKey, ObjectMeta, is_controlled_by
from informers.objects import PatchType
from informers.resource import Resource
from sandbox import behavior, vm_behavior
from sandbox.claims import CLAIMS, PERSISTENT_VOLUMES, PROTECTION, claim_step, persistent_volume_step
from sandbox.datavolumes import DATA_VOLUMES, obstacle_of, volume_step
from sandbox.instance_types import Definition
from sandbox.settings import DEFAULT, SimulationSettings
from sandbox.step import Change, Create, Delete, Patch, Step
from sandbox.vm_status import RelatedObjects
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import Document
from tests.fakes.virtual_time import run

CREATED = datetime(2026, 8, 1, 12, 0, 0, 400_000, tzinfo=UTC)


def vm_document(name: str = "vm", strategy: str = "Always", **template: Any) -> Document:
    """A VM. `annotations`, `labels` and `volumes` belong to the VM's template. `disks` has the names of the
    dataVolumeTemplates.
    """
    disks = template.pop("disks", ())
    volumes = template.pop("volumes", [{"name": disk, "dataVolume": {"name": disk}} for disk in disks])
    return {
        "metadata": {"name": name},
        "spec": {
            "runStrategy": strategy,
            "dataVolumeTemplates": [{"metadata": {"name": disk}, "spec": {"storage": {}}} for disk in disks],
            "template": {"metadata": template, "spec": {"domain": {}, "volumes": volumes}},
        },
    }


class Machines:
    """One namespace, and a simulator without delays."""

    def __init__(
        self,
        *documents: Document,
        serves_data_volumes: bool = True,
        defaults: SimulationSettings = DEFAULT,
        has_pod: bool = False,
    ) -> None:
        self.now = CREATED
        self.defaults = defaults
        self.serves_data_volumes = serves_data_volumes
        self.has_pod, self.vm_exists = has_pod, False
        """What the simulator of a VMI without a VM takes for granted."""

        self.definitions: dict[str, Definition] = {}
        """The instance type and the preference of all VMs, by field."""

        self.on_patch: Callable[[Document, Document], None] = lambda patch, answer: None
        """A function that is called for each patch of the simulator, with the server's answer."""

        self.server = FakeApiServer(
            latency_s=0,
            has_status=[VMS, DATA_VOLUMES, CLAIMS, PERSISTENT_VOLUMES],
            finalizers={CLAIMS: [PROTECTION], PERSISTENT_VOLUMES: ["kubernetes.io/pv-protection"]},
            now=lambda: self.now,
        )
        self.steps: list[tuple[str, str, str]] = []
        """The actions of the simulator: verb, kind and name."""

        self._first_seen: dict[str, datetime] = {}
        for document in documents:
            self.create(VMS, document)

    def create(self, resource: Resource[Any], document: Document) -> Document:
        made = self.server.put(resource, document)
        self._first_seen[made["metadata"]["uid"]] = self.now
        return made

    def patch(self, resource: Resource[Any], name: str, patch: Document) -> Self:
        self.server.change(resource, key(name), patch)
        return self

    def delete(self, resource: Resource[Any], name: str, *, propagation: str = "") -> Self:
        self.server.remove(resource, key(name), propagation=propagation)
        return self

    def live(self, seconds: float) -> Self:
        """Advance the time. The simulator acts without a delay."""
        until = self.now + timedelta(seconds=seconds)
        turns = 0
        while True:
            turns += 1
            assert turns < 500 + 50 * seconds, f"the simulator does not come to rest: {self.steps[-8:]}"
            waits = [self._advance(resource, name) for resource, (_, name), _ in self.server.every()]
            if any(wait == 0 for wait in waits):
                continue
            due = [self.now + timedelta(seconds=wait, microseconds=1) for wait in waits if wait is not None]
            self.now = min([until, *due])
            if self.now == until:
                return self

    def sleep(self, seconds: float) -> None:
        """Advance the time without a simulator. Then start a new simulator."""
        self.now += timedelta(seconds=seconds)
        self._first_seen = dict.fromkeys(self._first_seen, self.now)

    def document(self, resource: Resource[Any], name: str = "vm") -> Document | None:
        return self.server.current(resource, key(name))

    def get(self, resource: Resource[Any], name: str = "vm") -> Document:
        return self.server.document(resource, key(name))

    def status(self, name: str = "vm") -> Document:
        return self.get(VMS, name).get("status", {})

    @property
    def word(self) -> str:
        return str(self.status().get("printableStatus"))

    def done(self, verb: str, resource: Resource[Any]) -> list[str]:
        return [name for did, kind, name in self.steps if (did, kind) == (verb, resource.kind)]

    def uid(self, resource: Resource[Any], name: str = "vm") -> str | None:
        document = self.document(resource, name)
        return None if document is None else document["metadata"]["uid"]

    def _advance(self, resource: Resource[Any], name: str) -> float | None:
        """If the next step of an object is due, do it and return 0.

        Otherwise, return the seconds until the next step. If there is no next step, return None.
        """
        document = self.document(resource, name)
        if document is None:
            return 0
        step = self._ask(resource, document)
        assert step.after_s is None or not (step.effects or step.write)
        for effect in step.effects:
            match effect:
                case Create(resource=kind, body=body):
                    made = json.loads(run(self.server.create(kind, "default", body)))
                    self._first_seen[made["metadata"]["uid"]] = self.now
                    self._note("create", kind, made["metadata"]["name"])
                case Change(resource=kind, name=other, patch=patch):
                    self.take(kind, other, patch)
                case Delete(resource=kind, name=other, uid=uid):
                    run(self.server.delete(kind, key(other), uid=uid))
                    self._note("delete", kind, other)
        if step.write is not None:
            self.take(resource, name, step.write)
        return 0 if step.effects or step.write else step.after_s

    def _ask(self, resource: Resource[Any], document: Document) -> Step:
        obj = resource.decode(json.dumps(document).encode())
        first_seen = self._first_seen[document["metadata"]["uid"]]
        if resource is VMS:
            return vm_behavior.next_step(obj, self._around(obj.metadata), self.now, defaults=self.defaults)
        if resource is VMIS:
            vm = self.document(VMS, obj.metadata.name)
            obj = msgspec.structs.replace(obj, has_pod=self.has_pod)
            vm_exists = self.vm_exists or (
                vm is not None
                and any(owner.uid == vm["metadata"]["uid"] for owner in obj.metadata.owner_references or ())
            )
            kinds = (self._decoded(CLAIMS), self._decoded(DATA_VOLUMES))
            obstacle = obstacle_of(obj, *({name: kind[name] for name in obj.storage if name in kind} for kind in kinds))
            return behavior.next_step(obj, self.now, first_seen, obstacle, vm_exists=vm_exists, defaults=self.defaults)
        if resource is CONTROLLER_REVISIONS:
            return Step()
        if resource is DATA_VOLUMES:
            return volume_step(obj, self._decoded(CLAIMS).get(obj.metadata.name), self.now, first_seen)
        named = f'"{obj.metadata.name}"'
        users = [vmi for name, vmi in self._decoded(VMIS).items() if named in json.dumps(self.get(VMIS, name))]
        if resource is PERSISTENT_VOLUMES:
            return persistent_volume_step(obj, self._decoded(CLAIMS).get(obj.claim.name))
        return claim_step(obj, self._decoded(PERSISTENT_VOLUMES).get(obj.volume_key.name), users, self.now)

    def _around(self, vm: ObjectMeta) -> RelatedObjects:
        revisions = self._decoded(CONTROLLER_REVISIONS)
        return RelatedObjects(
            vmi=self._decoded(VMIS).get(vm.name),
            revisions={name: each for name, each in revisions.items() if is_controlled_by(each.metadata, vm.uid)},
            volumes=self._decoded(DATA_VOLUMES),
            claims=self._decoded(CLAIMS),
            serves_data_volumes=self.serves_data_volumes,
            definitions=self.definitions,
        )

    def _decoded(self, resource: Resource[Any]) -> dict[str, Any]:
        decode: Callable[[bytes], Any] = resource.decode
        documents = self.server.documents(resource)
        return {name: decode(json.dumps(document).encode()) for name, document in documents.items()}

    def take(self, resource: Resource[Any], name: str, patch: Patch) -> None:
        body, before = json.loads(patch.body), self.server.version
        assert body["metadata"]["uid"] == self.uid(resource, name)
        request = self.server.patch(
            resource, key(name), patch.body, content_type=PatchType.MERGE, subresource=patch.subresource
        )
        answer = json.loads(run(request))
        assert self.server.version > before, f"a write that changes nothing: {body}"
        self.on_patch(body, answer)
        self._note(f"patch {patch.subresource}".strip(), resource, name)

    def _note(self, verb: str, resource: Resource[Any], name: str) -> None:
        self.steps.append((verb, resource.kind, name))


def key(name: str) -> ObjectKey:
    return ObjectKey("default", name)
