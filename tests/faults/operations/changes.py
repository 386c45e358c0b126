"""Operations as values. Each operation changes one namespace, as a user or another controller would.

An operation picks its target when the operation is applied: `which` is an index into the list of children, sorted by
name. So a sequence stays meaningful when a part of it is left out. An operation whose target does not exist raises
NoTarget before it changes anything.
"""

import asyncio
from abc import abstractmethod
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from controller.kubevirt.annotations import POOL_FINALIZER
from tests.faults.judge.states import controller_uid, is_deleting
from tests.faults.operations.schema import random_value, violations
from tests.faults.operations.world import BEHAVIOR, HOLD, LABELS, World, matches

Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]
REJECTED = (400, 422)
TEMPLATES = ("template", "virtualMachineTemplate")


class Operation(Struct, frozen=True, tag=True):
    """One change: the base class of all operations."""

    @abstractmethod
    async def apply(self, world: World) -> str:
        """Make the change, and return a short note for the trace."""


class Wait(Operation, frozen=True):
    seconds: float

    async def apply(self, world: World) -> str:
        await asyncio.sleep(self.seconds)
        return ""


class ChangeOwner(Operation, frozen=True):
    """Apply a merge patch to the owner. A policy of the spec, which is an object, is replaced whole."""

    change: dict[str, Any]
    subresource: str = ""

    async def apply(self, world: World) -> str:
        spec = self.change.get("spec") or {}
        world.preserved |= "scaleInStrategy" in spec
        policies = {field: None for field, value in spec.items() if isinstance(value, dict) and field not in TEMPLATES}
        if policies:
            await world.change_owner({"spec": policies})
        return str((await world.change_owner(self.change, subresource=self.subresource)).code)


def scale(replicas: int | None, *, through_scale: bool = False) -> ChangeOwner:
    """Change `spec.replicas`, directly or through the subresource `scale`. None writes null, so the default applies."""
    subresource = "/scale" if through_scale and replicas is not None else ""
    return ChangeOwner({"spec": {"replicas": replicas}}, subresource)


def set_spec(field: str, value: Any) -> ChangeOwner:
    """Replace one field of the spec. None removes the field."""
    return ChangeOwner({"spec": {field: value}})


def annotate_owner(key: str, value: str | None) -> ChangeOwner:
    return ChangeOwner({"metadata": {"annotations": {key: value}}})


def label_owner(value: str | None) -> ChangeOwner:
    return ChangeOwner({"metadata": {"labels": {"test.vmherd.dev/team": value}}})


class ChangeChild(Operation, frozen=True):
    """Apply a merge patch to a child, as a user does."""

    which: int
    change: dict[str, Any]

    async def apply(self, world: World) -> str:
        return await change_this(world, await world.child(self.which), self.change)


def relabel_child(which: int, value: str | None) -> ChangeChild:
    """Change the label that the selector reads: detach a child, or attach it again."""
    return ChangeChild(which, {"metadata": {"labels": {next(iter(LABELS)): value}}})


def annotate_child(which: int, key: str, value: str | None) -> ChangeChild:
    return ChangeChild(which, {"metadata": {"annotations": {key: value}}})


def edit_child(which: int, value: str | None) -> ChangeChild:
    """Add a label to a child, or remove it."""
    return ChangeChild(which, {"metadata": {"labels": {"test.vmherd.dev/edited": value}}})


class Reject(Operation, frozen=True):
    """Send a spec that violates the CRD's schema. The server must refuse it and change nothing."""

    which: int

    async def apply(self, world: World) -> str:
        broken = violations(world.kind)
        case = broken[self.which % len(broken)]
        before = await world.owner()
        if before is None:
            return "no owner"
        answer = await world.api.send("PATCH", world.owner_path, case.steps(before), "application/json-patch+json")
        after = await world.owner()
        same = after is None or after["metadata"]["uid"] != before["metadata"]["uid"] or after["spec"] == before["spec"]
        if answer.code not in (*REJECTED, 404) or not same:
            world.problems.append(f"the server answers {answer.code} to {case}: {answer.message}")
            await world.note_manifest()
        return f"{answer.code} {case.path}"


class Vary(Operation, frozen=True):
    """Replace one policy of the spec by a random value of its schema. The server may refuse it."""

    field: str
    seed: int

    async def apply(self, world: World) -> str:
        value = random_value(world.kind, self.field, self.seed)
        world.preserved |= self.field == "scaleInStrategy"
        answer = await world.change_owner({"spec": {self.field: None}})
        if answer.ok and value is not None:
            answer = await world.change_owner({"spec": {self.field: value}})
        if answer.code not in (200, 404, *REJECTED):
            world.problems.append(f"the server answers {answer.code} to {self.field}={value}: {answer.message}")
        return f"{answer.code} {value}"


class DeleteOwner(Operation, frozen=True):
    """Delete the owner. With `recreate`, create it again with the same name and spec as soon as possible."""

    propagation: Propagation
    recreate: bool

    async def apply(self, world: World) -> str:
        owner = await world.owner()
        if owner is None:
            return await world.recreate_owner() if self.recreate else "no owner"
        plural = world.owner_path.rsplit("/", 2)[1]
        answer = await world.delete(plural, owner, self.propagation)
        return await world.recreate_owner() if self.recreate else str(answer.code)


class HoldOwner(Operation, frozen=True):
    """Add a foreign finalizer to the owner, or remove it."""

    held: bool

    async def apply(self, world: World) -> str:
        owner = await world.owner()
        if owner is None:
            return "no owner"
        return str((await world.set_finalizer(world.owner_path, owner, HOLD, present=self.held)).code)


class DeleteChild(Operation, frozen=True):
    which: int
    propagation: Propagation = "Background"

    async def apply(self, world: World) -> str:
        child = await world.child(self.which)
        world.preserved |= self.propagation == "Orphan"
        answer = await world.delete(world.child_plural, child, self.propagation)
        return f"{child['metadata']['name']} {answer.code}"


class FailChild(Operation, frozen=True):
    """Make the running VMI of a child misbehave, or behave again."""

    which: int
    behavior: str | None

    async def apply(self, world: World) -> str:
        child = await world.child(self.which)
        path = world.path("virtualmachineinstances", child["metadata"]["name"])
        answer = await world.api.merge(path, {"metadata": {"annotations": {BEHAVIOR: self.behavior}}})
        if answer.ok:
            world.edited.add(answer.document["metadata"]["uid"])
        return f"{child['metadata']['name']} {answer.code}"


class ChangeOwners(Operation, frozen=True):
    """Change the ownerReferences of a child.

    `remove` removes all of them. `foreign` replaces them by another controlling owner. `missing` replaces them by a
    controlling owner that does not exist, so that the garbage collector deletes the child. `second` adds an owner
    without `controller: true`.
    """

    which: int
    how: Literal["remove", "foreign", "missing", "second"]

    async def apply(self, world: World) -> str:
        child = await world.child(self.which)
        references = list(child["metadata"].get("ownerReferences") or ())
        if self.how == "remove":
            references = []
        elif self.how == "second":
            other = await _other_owner(world)
            references = [each for each in references if each["uid"] != other["uid"]] + [other]
        elif self.how == "foreign":
            references = [{**await _other_owner(world), "controller": True}]
        else:
            missing = {"apiVersion": "v1", "kind": "ConfigMap", "name": "missing", "uid": f"missing-{world.number()}"}
            references = [{**missing, "controller": True}]
        return await change_this(
            world, child, {"metadata": {"ownerReferences": references}}, kept=self.how != "missing"
        )


class HoldChild(Operation, frozen=True):
    """Add a finalizer to a child, or remove it. `ours` selects the pool finalizer instead of a foreign one."""

    which: int
    held: bool
    ours: bool = False

    async def apply(self, world: World) -> str:
        child = await world.child(self.which)
        path = world.path(world.child_plural, child["metadata"]["name"])
        name = POOL_FINALIZER if self.ours else HOLD
        answer = await world.set_finalizer(path, child, name, present=self.held)
        if answer.ok:
            _note_stranger(world, answer.document)
            if self.ours:
                world.edited.add(child["metadata"]["uid"])
        return f"{child['metadata']['name']} {answer.code}"


class CreateOther(Operation, frozen=True):
    """Create a VM or VMI as another client does, with or without the labels of the selector.

    With an ordinal, a VM gets the pool's name for this ordinal. Without an ordinal, the object gets another name.
    """

    matching: bool
    ordinal: int | None = None
    finalizer: bool = False

    async def apply(self, world: World) -> str:
        name = f"other-{world.number()}" if self.ordinal is None else f"herd-{self.ordinal}"
        spec = {"domain": {"resources": {"requests": {"memory": "32M"}}}}
        kind = "VirtualMachineInstance"
        if world.kind == "pools":
            kind, spec = "VirtualMachine", {"runStrategy": "Halted", "template": {"metadata": {}, "spec": spec}}
        labels = {**(LABELS if self.matching else {"app": "other"}), "test.vmherd.dev/made-by": "another"}
        metadata: dict[str, Any] = {"name": name, "labels": labels}
        if self.finalizer and world.kind == "pools":
            metadata["finalizers"] = [POOL_FINALIZER]
        body = {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
        answer = await world.api.send("POST", world.path(world.child_plural), body)
        if answer.ok:
            _note_stranger(world, answer.document)
        return f"{name} {answer.code}"


class Quota(Operation, frozen=True):
    """Limit the number of children of the namespace, or lift the limit."""

    most: int | None

    async def apply(self, world: World) -> str:
        path = world.path("resourcequotas")
        if self.most is None:
            return str((await world.api.send("DELETE", f"{path}/limit")).code)
        hard = {f"count/{world.child_plural}.kubevirt.io": str(self.most)}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "limit"}, "spec": {"hard": hard}}
        answer = await world.api.send("POST", path, body)
        if answer.code == 409:
            answer = await world.api.merge(f"{path}/limit", {"spec": {"hard": hard}})
        return str(answer.code)


class Crash(Operation, frozen=True):
    """End the controller without warning, and start another one after a while."""

    down_s: float = 0.0

    async def apply(self, world: World) -> str:
        await world.controller.crash()
        await asyncio.sleep(self.down_s)
        await world.controller.start(wait=False)
        return ""


class Cut(Operation, frozen=True):
    """Reset all connections of the controller: answers of writes are lost, watches end."""

    async def apply(self, world: World) -> str:
        world.controller.cut()
        return ""


class Stall(Operation, frozen=True):
    """Hold back all that the server sends to the controller, while the next operations go on."""

    seconds: float

    async def apply(self, world: World) -> str:
        world.background(world.controller.stall(self.seconds))
        return ""


async def change_this(world: World, child: dict[str, Any], change: dict[str, Any], *, kept: bool = True) -> str:
    answer = await world.change_child(child, change)
    if answer.ok:
        world.edited.add(child["metadata"]["uid"])
        _note_stranger(world, answer.document, kept=kept)
    return f"{child['metadata']['name']} {answer.code}"


def _note_stranger(world: World, item: dict[str, Any], *, kept: bool = True) -> None:
    """Note an object that belongs to another owner or to none, and that the garbage collector keeps."""
    uid = item["metadata"]["uid"]
    controller = controller_uid(item)
    adopted_later = world.kind == "sets" and not controller and matches(item)
    foreign = not controller or any(each["name"] == "other-owner" for each in item["metadata"]["ownerReferences"])
    if kept and foreign and not adopted_later and not is_deleting(item) and controller not in world.owner_uids:
        world.strangers[uid] = item
    else:
        world.strangers.pop(uid, None)


async def _other_owner(world: World) -> dict[str, Any]:
    """A reference to a ConfigMap.

    Children get this reference in addition to their owner references, or instead of them.
    """
    path = world.path("configmaps")
    answer = await world.api.get(f"{path}/other-owner")
    if not answer.ok:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other-owner"}}
        answer = await world.api.send("POST", path, body)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "other-owner", "uid": answer.document["metadata"]["uid"]}
