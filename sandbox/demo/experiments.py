"""This module has the example objects and the experiments of the demo. A user starts each experiment with a key.

An experiment first looks at the objects as they are. If its change is already made, it has nothing to do. So each key
can be pressed at any time, in any order, and twice. All functions of this module are pure.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

from controller.kinds import POOLS, REPLICA_SETS, Kind
from controller.kubevirt.annotations import REPLACE_UNREADY_AFTER
from sandbox.demo.status import (
    Object,
    controller_of,
    is_terminating,
    name_of,
    number_of_revision,
    owned_by,
    place_of,
    status_of,
)
from sandbox.demo.tables import View

Command: TypeAlias = tuple[str, ...]
"""A command as a user types it: the program and its arguments."""

EXAMPLES: Final = Path(__file__).parent.parent.parent / "manifests" / "examples"
SET_EXAMPLE: Final = EXAMPLES / "replicaset-v1alpha3.yaml"
POOL_EXAMPLE: Final = EXAMPLES / "pool-v1beta1-vm-pool-web.yaml"
SET_NAME, SET_SIZE = "testreplicaset", 3
POOL_NAME, POOL_SIZE = "vm-pool-web", 4
SET, POOL = f"vmirs/{SET_NAME}", f"vmpool/{POOL_NAME}"

EXAMPLE_MAX_UNAVAILABLE: Final = 1
"""The maximum number of unavailable VMs of the example pool. This pool has 4 VMs, and its maxUnavailable is 25%."""

BROKEN: Final = f"{POOL_NAME}-1"
READY_AFTER, BEHAVIOR = "sim.vmherd.dev/ready-after", "sim.vmherd.dev/behavior"


def merge_patch(resource: str, name: str, change: Any) -> Command:
    """Return the kubectl command that changes an object with a merge patch."""
    return "kubectl", "patch", resource, name, "--type", "merge", "-p", json.dumps(change, separators=(",", ":"))


def pool_template(annotations: Any) -> dict[str, Any]:
    """Return the change that gives the template of a pool's VMIs these annotations."""
    return {"spec": {"virtualMachineTemplate": {"spec": {"template": {"metadata": {"annotations": annotations}}}}}}


def changed_vm(name: str, annotations: Any) -> tuple[Command, ...]:
    """Return the commands that give one VM these annotations, and start the VM again with them."""
    change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    return merge_patch("vm", name, change), ("kubectl", "delete", "vmi", name, "--ignore-not-found")


UPDATE: Final = merge_patch("vmpool", POOL_NAME, pool_template({READY_AFTER: "2s"}))
"""The command that changes the pool's template.

With the new template, each VM needs two seconds to boot. The pool restarts all VMs.
"""

BAD_IMAGE: Final = merge_patch("vmpool", POOL_NAME, pool_template({BEHAVIOR: "image-error"}))
FAIL: Final = changed_vm(BROKEN, {BEHAVIOR: "fail"})
"""The two commands that make one VM fail at every start."""


MORE_SET, MORE_POOL = SET_SIZE + 2, POOL_SIZE + 2
DETACHED: Final = f"{POOL_NAME}-2"
HANG: Final = {BEHAVIOR: "never-ready"}
HEAL_AFTER_S: Final = 5
FIRST_REVISION: Final = 1


class Step(Struct, frozen=True):
    """What an experiment does now, in one line, and its commands. Without commands, there is nothing to do."""

    line: str
    commands: tuple[Command, ...] = ()


class Experiment(Struct, frozen=True):
    """One experiment.

    `look` returns what the experiment does now. Its arguments are all objects, and the pool of the demo. `lines` are
    the commands that a user can paste to make the experiment by hand.
    """

    key: str
    name: str
    purpose: str
    look: Callable[[View, dict[str, Any]], Step]
    lines: tuple[Command, ...]
    needs_pool: bool = True

    def decide(self, view: View) -> Step:
        pool = _owner(view, POOLS, POOL_NAME)
        if pool is None and self.needs_pool:
            return Step(f"nothing to do: {POOL} does not exist; 0 creates it")
        return self.look(view, pool or {})


def scale_command(resource: str, name: str, replicas: int) -> Command:
    return "kubectl", "scale", resource, name, "--replicas", str(replicas)


def heal_command(seconds: str) -> Command:
    """Return the command that sets the annotation for healing. `-` removes the annotation."""
    suffix = "-" if seconds == "-" else f"={seconds}"
    return "kubectl", "annotate", "--overwrite", "vmpool", POOL_NAME, f"{REPLACE_UNREADY_AFTER}{suffix}"


def undo_command(revision: int) -> Command:
    return "kubectl", "vmherd", "rollout", "undo", POOL, f"--to-revision={revision}"


def detach_command(name: str) -> Command:
    return "kubectl", "vmherd", "detach", f"vm/{name}"


def apply_command(*examples: object) -> Command:
    return "kubectl", "apply", *(part for example in examples for part in ("-f", str(example)))


def _scale(view: View, pool: dict[str, Any]) -> Step:
    sizes = f"the set to {MORE_SET} VMIs and the pool to {MORE_POOL} VMs"
    replica_set = _owner(view, REPLICA_SETS, SET_NAME)
    wanted = ((replica_set, "vmirs", SET_NAME, MORE_SET), (pool, "vmpool", POOL_NAME, MORE_POOL))
    commands = tuple(
        scale_command(resource, name, size)
        for owner, resource, name, size in wanted
        if owner and owner["spec"].get("replicas", 1) != size
    )
    if commands:
        return Step(f"scale {sizes}", commands)
    return Step(f"nothing to do: the set has {MORE_SET} VMIs and the pool {MORE_POOL} VMs; 0 goes back")


def _update(view: View, pool: dict[str, Any]) -> Step:
    annotations = _template_annotations(pool)
    if BEHAVIOR in annotations:
        repaired = merge_patch("vmpool", POOL_NAME, pool_template({READY_AFTER: "2s", BEHAVIOR: None}))
        return Step("give the pool a template with a good image: VMs restart one at a time", (repaired,))
    if READY_AFTER in annotations:
        return Step("nothing to do: the pool has the new template; 7 goes back to the one before")
    return Step("give the pool a new template: VMs restart one at a time, each boots for 2 s", (UPDATE,))


def _break(view: View, pool: dict[str, Any]) -> Step:
    members = _members(view, pool)
    if hanging := _hanging(members):
        what_next = "the pool replaces it soon" if _heals(pool) else "5 heals it"
        return Step(f"nothing to do: {hanging[0]} hangs already; {what_next}")
    name = _chosen(members, BROKEN)
    if not name:
        return Step("nothing to do: the pool has no VM yet")
    after = "the pool replaces it soon" if _heals(pool) else "it runs and is not ready until you press 5"
    return Step(f"let the guest of {name} hang: {after}", changed_vm(name, HANG))


def _bad_image(view: View, pool: dict[str, Any]) -> Step:
    annotations = _template_annotations(pool)
    if BEHAVIOR in annotations:
        return Step("nothing to do: the template has a bad image already; w says why the update waits, 7 undoes it")
    return Step("give the pool a template with a bad image: the update stops at the first VM", (BAD_IMAGE,))


def _heal(view: View, pool: dict[str, Any]) -> Step:
    hanging = _hanging(_members(view, pool))
    if _heals(pool):
        waits = f"{hanging[0]} is replaced soon" if hanging else "3 breaks a VM"
        return Step(f"nothing to do: the pool replaces VMs that are not ready for {HEAL_AFTER_S} s; {waits}")
    first = f": {hanging[0]} first" if hanging else "; now no VM hangs: 3 breaks one"
    return Step(
        f"let the pool replace each VM that runs and is not ready for {HEAL_AFTER_S} s{first}",
        (heal_command(str(HEAL_AFTER_S)),),
    )


def _detach(view: View, pool: dict[str, Any]) -> Step:
    if detached := _detached(view):
        return Step(f"nothing to do: {detached[0]} is detached already; 0 deletes it")
    name = _chosen(_members(view, pool), DETACHED)
    if not name:
        return Step("nothing to do: the pool has no VM yet")
    return Step(
        f"detach {name}: it keeps running, and the pool creates a VM with a new number", (detach_command(name),)
    )


def _undo(view: View, pool: dict[str, Any]) -> Step:
    status = status_of(pool)
    newest, oldest = (number_of_revision(str(status.get(field, ""))) for field in ("updateRevision", "currentRevision"))
    if newest <= FIRST_REVISION:
        return Step("nothing to undo: the pool has its first template, revision 1")
    # During an update, the oldest revision in use is the one before.
    target = oldest if 0 < oldest < newest else FIRST_REVISION
    return Step(f"return the pool from revision {newest} to the template of revision {target}", (undo_command(target),))


def _reset(view: View, pool: dict[str, Any]) -> Step:
    replica_set = _owner(view, REPLICA_SETS, SET_NAME)
    commands: list[Command] = []
    if _size(replica_set) != SET_SIZE or _size(pool) != POOL_SIZE:
        commands.append(apply_command(SET_EXAMPLE, POOL_EXAMPLE))
    if _template_annotations(pool):
        commands.append(merge_patch("vmpool", POOL_NAME, pool_template(None)))
    if _heals(pool):
        commands.append(heal_command("-"))
    gone = [*_detached(view), *_hanging(_members(view, pool))]
    if gone:
        commands.append(("kubectl", "delete", "vm", *gone, "--wait=false"))
    if not commands:
        return Step("nothing to do: the set and the pool are as at the start")
    return Step(f"back to the start: {SET_SIZE} VMIs, {POOL_SIZE} VMs, the first template", tuple(commands))


_ALL: Final = (
    Experiment(
        "1",
        "scale",
        f"scale the set to {MORE_SET} VMIs and the pool to {MORE_POOL} VMs",
        _scale,
        (scale_command("vmirs", SET_NAME, MORE_SET), scale_command("vmpool", POOL_NAME, MORE_POOL)),
        needs_pool=False,
    ),
    Experiment("2", "update", "give the pool a new template: VMs restart one at a time", _update, (UPDATE,)),
    Experiment(
        "3",
        "break a VM",
        "let the guest of one VM hang: it runs, and is not ready",
        _break,
        changed_vm(BROKEN, HANG),
    ),
    Experiment(
        "4",
        "bad image",
        "give the pool a template that cannot start: the update stops at the first VM",
        _bad_image,
        (BAD_IMAGE,),
    ),
    Experiment(
        "5",
        "heal",
        f"let the pool replace VMs that run and are not ready for {HEAL_AFTER_S} s",
        _heal,
        (heal_command(str(HEAL_AFTER_S)),),
    ),
    Experiment(
        "6",
        "detach",
        "take a VM out of the pool: it stays, and another VM takes its place",
        _detach,
        (detach_command(DETACHED),),
    ),
    Experiment("7", "undo", "return the pool to the template before", _undo, (undo_command(FIRST_REVISION),)),
    Experiment(
        "0",
        "reset",
        "make the set and the pool as they were at the start",
        _reset,
        (apply_command(SET_EXAMPLE, POOL_EXAMPLE), merge_patch("vmpool", POOL_NAME, pool_template(None))),
        needs_pool=False,
    ),
)
EXPERIMENTS: Final[Mapping[str, Experiment]] = {each.key: each for each in _ALL}


def _owner(view: View, kind: Kind[Any], name: str) -> dict[str, Any] | None:
    """Return the set or pool of the demo, or None if it does not exist or is being deleted."""
    return next((each for each in view.of(kind) if name_of(each) == name and not is_terminating(each)), None)


def _size(owner: Object | None) -> int | None:
    return owner["spec"].get("replicas", 1) if owner else None


def _template_annotations(pool: Object) -> Mapping[str, str]:
    """Return the annotations of the VMI template of a pool."""
    return _annotations(pool["spec"]["virtualMachineTemplate"]["spec"]["template"]) if pool else {}


def _annotations(subject: Object) -> Mapping[str, str]:
    return (subject.get("metadata") or {}).get("annotations") or {}


def _heals(pool: Object) -> bool:
    return REPLACE_UNREADY_AFTER in _annotations(pool)


def _members(view: View, pool: Object) -> list[dict[str, Any]]:
    """Return the VMs of the pool that stay, by number."""
    return sorted((vm for vm in owned_by(pool, view.vms) if not is_terminating(vm)), key=place_of) if pool else []


def _hanging(vms: Iterable[Object]) -> list[str]:
    """Return the names of the VMs that the experiment "break a VM" changed."""
    return [name_of(vm) for vm in vms if HANG.items() <= _annotations(vm["spec"]["template"]).items()]


def _detached(view: View) -> list[str]:
    """Return the names of the VMs that belonged to the pool and were detached."""
    return [
        name_of(vm)
        for vm in view.vms
        if controller_of(vm) is None and name_of(vm).startswith(f"{POOL_NAME}-") and not is_terminating(vm)
    ]


def _chosen(vms: list[dict[str, Any]], name: str) -> str:
    """Return this name if there is a VM with it. Otherwise, return the name of the last VM, or ""."""
    names = [name_of(vm) for vm in vms]
    return name if name in names else next(reversed(names), "")
