"""The users of a life, and its accidents. Each method is one act of a story."""

from collections.abc import Iterable
from contextlib import suppress
from copy import deepcopy
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from controller import kinds
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS, VMS
from controller.kubevirt.resources import DISRUPTION_BUDGETS as BUDGETS
from informers.errors import ApiError
from informers.meta import ObjectKey
from tests.fakes.requests import Document
from tests.fakes.rules import wire
from tests.simulation.claims import users_of_deleted_claims
from tests.simulation.features import GOOD_VALUES, vm_template, vmi_spec
from tests.simulation.kubevirt import LOST_AFTER_S, NODES, image_of
from tests.simulation.moments import preview_of_scale
from tests.simulation.objects import (
    FIELD,
    cleared,
    controller_uid,
    images_of,
    may_be_evicted,
    member_of,
    resource_of,
    template_of,
)
from tests.simulation.restores import adopt_all, put_missing, restored
from tests.simulation.story import BUSY_UNTIL_S, Act
from tests.simulation.takeover import made_by_kubevirt
from tests.simulation.weather import Weather
from tests.simulation.world import World

CLAIM: Final = (names.CLAIMED_BY, names.CLAIMED_UNTIL)
_MARKS: Final = (names.REMOVE, names.PROTECT, names.BUSY_UNTIL, names.DELETION_COST, names.SUBSTITUTE, *CLAIM)
ROLLING: Final = GOOD_VALUES[names.ROLLING_UPDATE]
HUGE: Final = 6_000_000
TRIED_S: Final = 8.0
LAST_IMAGE: Final = "v9"  # the good image that all sets and pools get at the end


class Users(Weather):
    """Carries out the acts of a story. An act whose object does not exist does nothing."""

    def __init__(self, world: World, chance: Random) -> None:
        super().__init__(world)
        self._server = world.server
        self._chance = chance
        self._births: dict[str, dict[str, Any]] = {}
        self._restored: list[ObjectKey] = []

    def carry_out(self, act: Act) -> None:
        with self._server.acting("user"), suppress(ApiError, IndexError):  # the object may be gone
            getattr(self, f"_{act.what}")(*act.args)

    # Sets and pools

    def _create(self, kind: str, name: str, given: dict[str, Any]) -> None:
        self._births[name] = given
        labels = {"app": given["app"], **({names.IN_SERVICE: "true"} if given["in_service"] else {})}
        spec: Document = {"replicas": given["replicas"], "selector": {"matchLabels": {"app": given["app"]}}}
        spec |= given["fields"]
        if kind == "pool":
            template = vm_template(labels, given["image"], _own(name, given, given["disks"]), "1Gi", given["strategy"])
            spec["virtualMachineTemplate"] = template
        else:
            spec["template"] = {"metadata": {"labels": labels}, "spec": vmi_spec(given["image"])}
        migrates = {names.MIGRATE: "true"} if kind == "pool" and self._world.options.migrations else {}
        metadata = {**self._key_of(name)._asdict(), "annotations": {**given["annotations"], **migrates}}
        resource = resource_of(kind)
        if self._server.current(resource, self._key_of(name)) is None:
            head = {"apiVersion": resource.api_version, "kind": resource.kind}
            made = self._server.put(resource, {**head, "metadata": metadata, "spec": spec})
            for resource, each in made_by_kubevirt(kind, made) if given.get("taken_over") else ():
                self._server.put(resource, each)

    def _scale(self, kind: str, name: str, replicas: int) -> None:
        self._change(kind, name, {"spec": {"replicas": replicas}})

    def _scale_as_foretold(self, kind: str, name: str, replicas: int) -> None:
        """A user asks what the new number does, and then writes it."""
        self._owner(kind, name)
        of_kind = kinds.POOLS if kind == "pool" else kinds.REPLICA_SETS
        shown = preview_of_scale(self._world, of_kind, self._key_of(name), replicas)
        self._scale(kind, name, replicas)
        if shown is not None:
            self._world.foretold.append(shown)

    def _template(self, kind: str, name: str, image: str) -> None:
        inner = self._vmi_spec(kind, name)
        volumes = [
            {**each, "containerDisk": {"image": image}} if "containerDisk" in each else each
            for each in inner["volumes"]
        ]
        self._set_vmi_spec(kind, name, {**inner, "volumes": volumes})

    def _change_disks(self, kind: str, name: str, disks: tuple[str, ...], size: str, image: str | None) -> None:
        old = self._owner(kind, name)["spec"]["virtualMachineTemplate"]
        labels = old["spec"]["template"]["metadata"]["labels"]
        wanted = image or image_of(old["spec"]["template"]["spec"])
        new = vm_template(labels, wanted, _own(name, self._births[name], disks), size, old["spec"]["runStrategy"])
        self._change_field(kind, name, "virtualMachineTemplate", new)

    def _annotate(self, kind: str, name: str, annotation: str, value: str | None) -> None:
        self._change(kind, name, {"metadata": {"annotations": {annotation: value}}})

    def _live_change(self, kind: str, name: str, sockets: int, zone: str, plugged: tuple[str, ...] = ()) -> None:
        """A change of the template that KubeVirt can give to running VMIs."""
        spec = self._vmi_spec(kind, name)
        fixed = [each for each in spec["volumes"] if "persistentVolumeClaim" not in each]
        more = [{"name": each, "persistentVolumeClaim": {"claimName": each, "hotpluggable": True}} for each in plugged]
        disks = [{"name": each["name"], "disk": {"bus": "virtio"}} for each in (*fixed, *more)]
        domain = {**spec["domain"], "cpu": {"sockets": sockets}, "devices": {"disks": disks}}
        new = {**spec, "domain": domain, "nodeSelector": {"zone": zone}, "volumes": [*fixed, *more]}
        self._set_vmi_spec(kind, name, new)

    def _change_field(self, kind: str, name: str, field: str, value: Any) -> None:
        owner = self._owner(kind, name)
        spec = {key: each for key, each in {**owner["spec"], field: value}.items() if each is not None}
        self._server.replace(resource_of(kind), {**owner, "spec": spec})

    def _restore(self, kind: str, name: str, pool_first: bool, renamed: bool) -> None:
        """The pool is lost with its VMs, and a backup tool makes both again."""
        after, pool = self._world.loop.call_later, Act(0.0, "create", (kind, name, self._births.get(name)))
        after(25 + 5 * pool_first, put_missing, self._server, restored(self._members(kind, name), renamed=renamed))
        self._delete_owner(kind, name, "Background")
        self._restored.append(self._key_of(name))
        after(30 - 5 * pool_first, self.carry_out, pool)
        after(50, adopt_all, self._server, self._key_of(name))

    def _delete_owner(self, kind: str, name: str, propagation: str) -> None:
        self._server.remove(resource_of(kind), self._key_of(name), propagation=propagation)

    def _undo(self, kind: str, name: str) -> None:
        """Return to the image before the present one."""
        images = images_of(self._server.changes, kind, name)
        if len(images) > 1:
            self._template(kind, name, images[-2])

    def _try_templates(self, kind: str, name: str, image: str, left: int) -> None:
        """A user tries a template with this image, takes it back, and tries the next. The last one stays."""
        if self._world.loop.time() >= BUSY_UNTIL_S:
            return
        field = FIELD[kind]
        before = self._owner(kind, name)["spec"][field]
        self._template(kind, name, image)
        tried = self._owner(kind, name)["spec"][field]
        pod = tried["spec"]["template"] if kind == "pool" else tried
        pod["metadata"] = {**pod["metadata"], "annotations": {"attempt": str(left)}}
        self._change_field(kind, name, field, tried)
        if left:
            after = Act(0.0, "take_back", (kind, name, image, left, before))
            self._world.loop.call_later(TRIED_S, self.carry_out, after)

    def _take_back(self, kind: str, name: str, image: str, left: int, before: Document) -> None:
        if self._world.loop.time() >= BUSY_UNTIL_S:
            return
        self._change_field(kind, name, FIELD[kind], before)
        self._world.loop.call_later(TRIED_S, self.carry_out, Act(0.0, "try_templates", (kind, name, image, left - 1)))

    def _scale_huge(self, kind: str, name: str) -> None:
        self._change(kind, name, {"spec": {"replicas": HUGE}})
        self._world.loop.call_later(2.0, self.carry_out, Act(0.0, "scale", (kind, name, 2)))

    def _grace(self, kind: str, name: str, seconds: int) -> None:
        grace = {"terminationGracePeriodSeconds": seconds}
        self._set_vmi_spec(kind, name, {**self._vmi_spec(kind, name), **grace})

    # Members

    def _mark(self, kind: str, name: str, number: int, annotation: str, value: str) -> None:
        if annotation == names.BUSY_UNTIL and value.endswith("Z"):
            begun = timedelta(seconds=self._world.loop.time())
            value = wire(datetime.fromisoformat(value) + begun)
        self._edit_member(kind, name, number, {"metadata": {"annotations": {annotation: value}}})

    def _claim(self, kind: str, name: str, number: int, lasts_s: int | None) -> None:
        until = wire(self._world.now() + timedelta(seconds=lasts_s)) if lasts_s is not None else None
        claim = {names.CLAIMED_BY: f"job-{number}", names.CLAIMED_UNTIL: until}
        self._edit_member(kind, name, number, {"metadata": {"annotations": claim}})

    def _unmark(self, kind: str, name: str, number: int) -> None:
        self._edit_member(kind, name, number, {"metadata": {"annotations": dict.fromkeys(_MARKS)}})

    def _protect_all(self, kind: str, name: str) -> None:
        for each in self._members(kind, name):
            self._server.change(member_of(kind), _key(each), {"metadata": {"annotations": {names.PROTECT: "true"}}})

    def _answer_drains(self, kind: str, name: str) -> None:
        for each in self._members(kind, name):
            if names.DRAINING in (each["metadata"].get("annotations") or {}):
                answer = {"metadata": {"annotations": {names.DRAINED: "true"}}}
                self._server.change(member_of(kind), _key(each), answer)

    def _hold_drains(self, kind: str, name: str, mark: str) -> None:
        """Users hold the VMs that drain."""
        until = wire(self._world.now() + timedelta(seconds=3600))
        for each in self._members(kind, name):
            if names.DRAINING in (each["metadata"].get("annotations") or {}):
                value = {mark: until if mark == names.BUSY_UNTIL else "true"}
                self._server.change(member_of(kind), _key(each), {"metadata": {"annotations": value}})

    def _drift(self, kind: str, name: str) -> None:
        """From now on, another controller changes a label of each member some time after its creation."""
        for each in self._members(kind, name):
            self._server.change(member_of(kind), _key(each), {"metadata": {"labels": {"app": "drifted"}}})
        if self._world.loop.time() < BUSY_UNTIL_S - 31:
            self._world.loop.call_later(31.0, self.carry_out, Act(0.0, "drift", (kind, name)))

    def _bad_second(self, kind: str, name: str, node: str, number: int) -> None:
        """A node is lost, and in the second when Kubernetes notices it, guests on other nodes hang."""
        self._lose_node(kind, name, node)
        for place in (number, number + 1):
            act = Act(0.0, "accident", (kind, name, place, "hang"))
            if self._world.loop.time() < BUSY_UNTIL_S - LOST_AFTER_S:
                self._world.loop.call_later(LOST_AFTER_S + 0.01, self.carry_out, act)

    def _static_claim(self, kind: str, name: str, ordinal: int) -> None:
        """A user has made a disk by hand, and its name is that of a disk template with an ordinal."""
        claim_name = f"{name}-d-{ordinal}"
        if self._server.current(PVCS, self._key_of(name)._replace(name=claim_name)) is None:
            spec = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"}
            status = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
            metadata = {**self._key_of(name)._replace(name=claim_name)._asdict(), "labels": {"made-by": "hand"}}
            self._server.put(PVCS, {"metadata": metadata, "spec": spec, "status": status})

    def _delete_member(self, kind: str, name: str, number: int, propagation: str) -> None:
        self._server.remove(member_of(kind), _key(self._member(kind, name, number)), propagation=propagation)

    def _delete_vmi(self, kind: str, name: str, number: int) -> None:
        self._server.remove(VMIS, _key(self._member(kind, name, number)))

    def _detach(self, kind: str, name: str, number: int) -> None:
        self._edit_member(kind, name, number, {"metadata": {"ownerReferences": None}})

    def _relabel(self, kind: str, name: str, number: int) -> None:
        self._edit_member(kind, name, number, {"metadata": {"labels": {"app": "other"}}})

    def _adopt(self, kind: str, name: str) -> None:
        owner = self._owner(kind, name)
        labels = owner["spec"]["template"]["metadata"]["labels"]
        key = self._key_of(name)._replace(name=f"{name}-orphan-{int(self._world.loop.time())}")
        metadata = {**key._asdict(), "labels": labels}
        self._server.put(VMIS, {"metadata": metadata, "spec": vmi_spec("v1"), "status": {"phase": "Pending"}})

    def _accident(self, kind: str, name: str, number: int, what: str) -> None:
        kubevirt = self._world.kubevirts[self._key_of(name).namespace]
        kubevirt.accident(self._member(kind, name, number)["metadata"]["name"], what)

    def _switch_vm(self, kind: str, name: str, number: int, strategy: str) -> None:
        self._edit_member(kind, name, number, {"spec": {"runStrategy": strategy}})

    def _edit_grace(self, kind: str, name: str, number: int, seconds: int) -> None:
        grace = {"terminationGracePeriodSeconds": seconds}
        self._edit_member(kind, name, number, {"spec": {"template": {"spec": grace}}})

    def _snapshot(self, kind: str, name: str, number: int) -> None:
        self._edit_member(kind, name, number, {"status": {"snapshotInProgress": "nightly"}})

    def _pause_vm(self, kind: str, name: str, number: int) -> None:
        vmi = self._server.document(VMIS, _key(self._member(kind, name, number)))
        status = vmi.get("status") or {}
        conditions = [each for each in status.get("conditions") or [] if each["type"] != "Paused"]
        if conditions == (status.get("conditions") or []):  # else it is unpaused
            conditions = [*conditions, {"type": "Paused", "status": "True", "reason": "PausedByUser"}]
        self._server.change(VMIS, _key(vmi), {"status": {"conditions": conditions}})
        if kind == "pool":
            self._server.change(VMS, _key(vmi), {"status": {"printableStatus": "Paused"}})

    def _delete_claim(self, kind: str, name: str, number: int) -> None:
        claims = sorted(self._server.documents(PVCS, self._key_of(name).namespace))
        key = self._key_of(name)._replace(name=claims[number % max(len(claims), 1)])
        for resource in (each for each in (DATA_VOLUMES, PVCS) if self._server.current(each, key) is not None):
            self._server.remove(resource, key)

    def _evict(self, kind: str, name: str, number: int) -> None:
        """A user drains the node of a VM, and asks the budgets."""
        vmi = self._server.document(VMIS, _key(self._member(kind, name, number)))
        namespace = self._key_of(name).namespace
        if may_be_evicted(vmi, *(self._server.documents(each, namespace) for each in (VMIS, BUDGETS))):
            self._accident(kind, name, number, "finish")

    # The end

    def end_faults(self) -> None:
        """Let the nodes return, and let users take back all that stops the controller."""
        for node in NODES:
            self._return_node("", "", node, guests_died=True)
        with self._server.acting("user"):
            for each in self._restored:
                adopt_all(self._server, each)
            for resource in (VMS, VMIS):
                for each in self._world.everywhere(resource).values():
                    self._server.change(resource, _key(each), cleared(resource, each, dict.fromkeys(_MARKS)))
            for kind in ("pool", "set"):
                for name in sorted(self._world.everywhere(resource_of(kind))):
                    self._make_reachable(kind, name)
            self._remove_spare_disks()
            for vmi in users_of_deleted_claims(self._server):
                self._server.remove(*vmi)

    def _remove_spare_disks(self) -> None:
        """Delete the disks that no VM has or wants: a pool that keeps no disks does not use them."""
        vms = (vm["spec"] for vm in self._world.everywhere(VMS).values() if "deletionTimestamp" not in vm["metadata"])
        wanted = {each["metadata"]["name"] for spec in vms for each in spec.get("dataVolumeTemplates") or ()}
        disks = [each for kind in (DATA_VOLUMES, PVCS) for each in self._world.everywhere(kind).values()]
        spare = {_key(each) for each in disks if not each["metadata"].get("ownerReferences")}
        both = [(kind, key) for key in sorted(spare) if key.name not in wanted for kind in (DATA_VOLUMES, PVCS)]
        for each in [each for each in both if self._server.current(*each)]:
            self._server.remove(*each)

    def _make_reachable(self, kind: str, name: str) -> None:
        owner = self._owner(kind, name)
        if "deletionTimestamp" in owner["metadata"]:
            return
        changes: Document = dict.fromkeys((names.PARTITION, names.DRAIN_SECONDS, names.SCALE_IN))
        if kind == "pool":
            changes[names.MOST_DISRUPTIVE] = "recreate"
            changes[names.MAX_UNHEALTHY] = "100%"
        has_room = owner["spec"]["replicas"] < self._world.options.max_replicas  # for a surge
        notes = owner["metadata"].get("annotations") or {}
        if kind == "set" and not (has_room and notes.get(names.ROLLING_UPDATE) in ROLLING):
            changes[names.ROLLING_UPDATE] = "maxUnavailable=1"
        self._change(kind, name, {"metadata": {"annotations": changes}})
        for field in ("paused", "updateStrategy", "scaleInStrategy"):
            self._change_field(kind, name, field, None)
        if kind == "pool":
            template = self._owner(kind, name)["spec"]["virtualMachineTemplate"]["spec"]
            disks = tuple(each["metadata"]["name"] for each in template.get("dataVolumeTemplates") or ())
            self._change_field(kind, name, "maxUnavailable", "50%")
            self._change_disks(kind, name, disks, "2Gi", None)
            new = self._owner(kind, name)["spec"]["virtualMachineTemplate"]
            always = {**new, "spec": {**new["spec"], "runStrategy": "Always"}}
            self._change_field(kind, name, "virtualMachineTemplate", always)
        self._grace(kind, name, 30)
        self._template(kind, name, LAST_IMAGE)
        if self._owner(kind, name)["spec"]["replicas"] == HUGE:
            self._scale(kind, name, 2)

    # Access

    def _change(self, kind: str, name: str, patch: Document) -> None:
        self._server.change(resource_of(kind), self._key_of(name), patch)

    def _key_of(self, name: str) -> ObjectKey:
        return ObjectKey(self._world.namespace_of(name), name)

    def _owner(self, kind: str, name: str) -> Document:
        return deepcopy(self._server.document(resource_of(kind), self._key_of(name)))

    def _vmi_spec(self, kind: str, name: str) -> Document:
        spec: Document = template_of(kind, self._owner(kind, name))["spec"]
        return spec["template"]["spec"] if kind == "pool" else spec

    def _set_vmi_spec(self, kind: str, name: str, spec: Document) -> None:
        owner = self._owner(kind, name)
        template = template_of(kind, owner)
        (template["spec"]["template"] if kind == "pool" else template)["spec"] = spec
        self._server.replace(resource_of(kind), owner)

    def _members(self, kind: str, name: str) -> list[Document]:
        uid = self._owner(kind, name)["metadata"]["uid"]
        found = self._server.documents(member_of(kind), self._key_of(name).namespace)
        return [each for _, each in sorted(found.items()) if controller_uid(each) == uid]

    def _member(self, kind: str, name: str, number: int) -> Document:
        members = self._members(kind, name)
        return members[number % max(len(members), 1)]

    def _edit_member(self, kind: str, name: str, number: int, patch: Document) -> None:
        self._server.change(member_of(kind), _key(self._member(kind, name, number)), patch)


def _own(name: str, birth: dict[str, Any], disks: Iterable[str]) -> tuple[str, ...]:
    """The names of disk templates. Users give each pool own names, but not always."""
    prefix = "" if birth["shares_disks"] else f"{name}-"
    return tuple(each if each.startswith(prefix) else f"{prefix}{each}" for each in disks)


def _key(document: Document) -> ObjectKey:
    return ObjectKey(document["metadata"]["namespace"], document["metadata"]["name"])
