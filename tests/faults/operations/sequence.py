"""Runs one sequence of operations, and judges its end.

The end has up to three stages, each with its own checks:

1. The end of the sequence: the controller stops writing, and a restarted controller writes nothing. This stage is left
   out if a failure is permanent by design: a template whose VMs fail, or a quota.
2. The recovery: the owner is resumed, the quota and the foreign finalizers are removed, and the broken parts of the
   template and of the children are repaired. Then the state equals the state of a fresh namespace with the same spec.
   `equality` defines which states are equal. A restarted controller writes nothing.
3. The deletion of the owner: nothing of the owner is left, and no finalizer of the controller.

In the whole run, no operation found a violation, no log line has the level error, and the controller did not end.
"""

import asyncio
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from controller.kubevirt import annotations as ours
from tests.faults.judge import states
from tests.faults.judge.judge import Interval, Run, examine
from tests.faults.judge.states import Object
from tests.faults.operations import pools, sets
from tests.faults.operations.changes import DeleteOwner, Operation, annotate_owner
from tests.faults.operations.cluster import Cluster
from tests.faults.operations.equality import differences
from tests.faults.operations.sets import BROKEN_KEY
from tests.faults.operations.world import BEHAVIOR, HOLD, OWNERS, KindName, NoTarget, State, World
from tests.faults.resources import VMIS, VMS, VOLUMES

QUIET_S, LOOK_S = 1.2, 0.05
"""A controller that has not written for this time is at rest. `LOOK_S` is the time between two turns of the loop."""

REST_WITHIN_S = 60.0
EQUAL_WITHIN_S = 150.0
"""This limit is long, because a VM that crashed counts as available only after 30 seconds (P14)."""

JUDGED = ("H0", "S3", "S4", "S5", "S6", "S7", "S10", "S11", "S12", "S13", "S14")
"""The invariants for single writes. The others compare numbers over time, and users' operations change these numbers.

S9 is left out, because users make VMs unavailable too."""

SHORT_TIMER_S = 2.2
"""Before a restart, the controller must be quiet for this time. All times in the annotations that operations write on
owners are shorter.
"""

LATEST_TIMER_S = 32.0
"""If VMs are outdated, the controller must write nothing for this time, in seconds, before its restart.

The controller may wait for a timer: a VM that crashed counts as available only after 30 seconds (P14).
"""

AT_THE_END = "at the end of the operations"
GONE_WITHIN_S = 60.0
POLL_S = 0.5
WRITES_AT_MOST = 400
"""With more writes in one sequence, the controller is in a loop."""


class Verdict(Struct, frozen=True, kw_only=True):
    """What is wrong at the end of a sequence, and what happened before."""

    violations: tuple[str, ...]
    trace: tuple[str, ...]
    applied: int
    writes: int
    seconds: float
    checks: Mapping[str, int] = {}
    restarts: tuple[str, ...] = ()
    """The stages in which a restarted controller was judged."""


async def run_sequence(cluster: Cluster, kind: KindName, sequence: Sequence[Operation]) -> Verdict:
    """Run the operations in a new namespace, and check the result."""
    began = time.monotonic()
    manifest = sets.manifest() if kind == "sets" else pools.manifest()
    world = World(cluster, kind, await cluster.new_namespace(kind), manifest)
    fresh = Fresh(cluster, kind)
    violations: list[str] = []
    try:
        violations += await _run(world, fresh, sequence)
    except Exception:
        violations.append(f"an error of the test: {traceback.format_exc()}")
    finally:
        await world.join()
        await world.controller.crash()
        await fresh.close()
        await _clear(world)
    writes = len(cluster.observer.writes(world.namespace))
    return Verdict(
        violations=tuple(violations),
        trace=tuple(world.trace),
        applied=len(sequence),
        writes=writes,
        seconds=time.monotonic() - began,
        checks=world.checks,
        restarts=tuple(world.restarts),
    )


async def _run(world: World, fresh: "Fresh", sequence: Sequence[Operation]) -> list[str]:
    await world.create_owner()
    await world.note_manifest()
    await world.controller.start()
    for operation in sequence:
        await apply(world, operation)
    return await judge_end(world, fresh)


async def apply(world: World, operation: Operation) -> None:
    """Apply one operation, and note it in the trace."""
    at = time.monotonic()
    try:
        note = await operation.apply(world)
    except NoTarget as error:
        note = str(error)
    world.trace.append(f"{at - world.began:7.2f} {operation}: {note}")


async def judge_end(world: World, fresh: "Fresh") -> list[str]:
    """Do the checks of all stages, and return the violations."""
    await world.join()
    violations = list(world.problems)
    await world.controller.working()
    if await _is_stable(world):
        violations += await _rest(world, AT_THE_END)
    if not violations:
        violations += await _equals_fresh(world, fresh)
    if not violations:
        violations += await _restart(world, "after the recovery")
    if not violations:
        violations += await _deletes(world)
    violations += await _history(world)
    violations += [f"the controller logged {line}" for line in world.controller.errors()]
    if world.controller.ended:
        violations.append(f"the controller ended by itself: {world.controller.ended}")
    writes = len(world.cluster.observer.writes(world.namespace))
    if writes > WRITES_AT_MOST:
        violations.append(f"the controller wrote {writes} times")
    return violations


async def _history(world: World) -> list[str]:
    """Judge each write of the controller with the observer's history.

    Connections are cut and stalled, and the controller crashes. So the whole run counts as one fault: the judge allows
    what is right for any state since the start of the run.
    """
    history = await world.cluster.observer.history(world.namespace)
    run = Run(faults=(Interval(0.0, time.time()),), lost_answers=100, crashes=100)
    verdict = examine(history, run, only=JUDGED)
    world.checks = verdict.checks
    return [str(each) for each in verdict.violations]


async def _is_stable(world: World) -> bool:
    """Whether the controller can come to rest: creates are not limited, and nothing fails by design."""
    if world.refuses_creates or (await world.api.get(world.path("resourcequotas", "limit"))).ok:
        return False
    now = await world.state()
    failing = any(states.annotations_of(item).get(BEHAVIOR) for item in (*now.vmis, *now.volumes))
    failing |= any(_template_annotations(vm).get(BEHAVIOR) for vm in now.vms)
    return not failing and not any(key in str(world.manifest["spec"]) for key in (BEHAVIOR, BROKEN_KEY))


async def _rest(world: World, when: str) -> list[str]:
    """Wait until the controller has stopped writing, and then restart it.

    If the children do not settle, for example because a disk is missing, the controller must be quiet all the same.
    """
    give_up = time.monotonic() + REST_WITHIN_S
    while True:
        quiet = await _is_quiet(world)
        late = time.monotonic() > give_up
        if quiet and (late or is_settled(await world.state())) and await _is_quiet(world):
            return await _restart(world, when)
        if late:
            return [f"{when} the controller writes on and on: {_last_writes(world)}"]


async def _is_quiet(world: World, quiet_s: float = QUIET_S) -> bool:
    """Wait for a while. Return whether the controller wrote nothing in this time.

    The controller runs in the same event loop. If the loop stands still, the time does not count.
    """
    before = len(world.cluster.observer.writes(world.namespace))
    for _ in range(round(quiet_s / LOOK_S)):
        await asyncio.sleep(LOOK_S)
    return len(world.cluster.observer.writes(world.namespace)) == before


async def _restart(world: World, when: str) -> list[str]:
    """Restart the controller at rest, and check that the new controller writes nothing.

    While VMs are outdated, the controller may wait for a timer. In this case, it must be quiet for longer before the
    restart.
    """
    status = states.status_of(await world.owner() or {})
    is_updated = status.get("updatedReplicas", 0) == status.get("replicas", 0)
    give_up = time.monotonic() + REST_WITHIN_S
    while not await _is_quiet(world, LATEST_TIMER_S if world.kind == "pools" and not is_updated else SHORT_TIMER_S):
        if time.monotonic() > give_up:
            return [f"{when} the controller writes on and on: {_last_writes(world)}"]
    before = len(world.cluster.observer.writes(world.namespace))
    await world.controller.restart()
    world.restarts.append(when)
    if await _is_quiet(world):
        return []
    return [f"{when} a restarted controller writes: {_last_writes(world, before)}"]


async def _equals_fresh(world: World, fresh: "Fresh") -> list[str]:
    """Repair what operations broke. Then wait until the state is the same as in a fresh namespace. Return the
    differences.
    """
    give_up = time.monotonic() + EQUAL_WITHIN_S
    await recover(world)
    await fresh.start(world.manifest)
    found: list[str] = []
    while time.monotonic() < give_up:
        quiet = await _is_quiet(world)
        if found:
            await recover(world)
        new = await fresh.state()
        found = ["the fresh start is not at rest"] if new is None else differences(world, await world.state(), new)
        if not found and not quiet:
            found = [f"the controller writes on and on: {_last_writes(world)}"]
        if not found:
            return []
    return found


async def recover(world: World) -> None:
    """Repair what operations broke. A second call repairs only what is broken again."""
    await world.api.send("DELETE", world.path("resourcequotas", "limit"))
    await world.refuse_creates(refused=False)
    await world.drop_holds()
    await _recover_owner(world)
    if await world.owner() is None:
        await world.recreate_owner()
    now = await world.state()
    for vm in now.vms:
        if _template_annotations(vm).get(BEHAVIOR):
            change = {"spec": {"template": {"metadata": {"annotations": {BEHAVIOR: None}}}}}
            answer = await world.api.merge(world.path(VMS, states.name_of(vm)), change)
            if answer.ok and vm["metadata"]["uid"] in world.strangers:
                world.strangers[vm["metadata"]["uid"]] = answer.document
    for vmi in now.vmis:
        failed = states.status_of(vmi).get("phase") in ("Failed", "Succeeded", "Unknown")
        broken = (
            failed or states.annotations_of(vmi).get(BEHAVIOR) or states.annotations_of(vmi).get(ours.EARLY_FAILURES)
        )
        if broken and not states.is_deleting(vmi) and not _is_halted(now, vmi):
            await world.delete(VMIS, vmi)
    for volume in now.volumes:
        if states.annotations_of(volume).get(BEHAVIOR) and not states.is_deleting(volume):
            await world.delete(VOLUMES, volume)


async def _recover_owner(world: World) -> None:
    """Resume the owner, and remove the broken parts from its template. The manifest changes in the same way."""
    if world.kind == "pools":  # without leave, VMs may keep their disks and their template (P21)
        await annotate_owner(ours.MOST_DISRUPTIVE, ours.RECREATE).apply(world)
    spec = world.manifest["spec"]
    template = spec["virtualMachineTemplate" if world.kind == "pools" else "template"]
    nothing = {"metadata": {"annotations": {BROKEN_KEY: None, BEHAVIOR: None}}}
    change: dict[str, Any] = {"paused": None} if spec.pop("paused", None) else {}
    if BROKEN_KEY in str(spec) or BEHAVIOR in str(spec):
        of_pool = {"virtualMachineTemplate": {"spec": {"template": nothing}, **nothing}}
        change |= of_pool if world.kind == "pools" else {"template": nothing}
        for part in (template, template["spec"].get("template") or {}):
            for key in (BROKEN_KEY, BEHAVIOR):
                ((part.get("metadata") or {}).get("annotations") or {}).pop(key, None)
    if change:
        await world.change_owner({"spec": change})


async def _deletes(world: World) -> list[str]:
    """Delete the owner, and check that its children and the controller's finalizers are gone."""
    owner = await world.owner()
    assert owner is not None
    uid = owner["metadata"]["uid"]
    await DeleteOwner("Background", recreate=False).apply(world)
    give_up = time.monotonic() + GONE_WITHIN_S
    left = ["not checked"]
    while left and time.monotonic() < give_up:
        await asyncio.sleep(POLL_S)
        now = await world.state()
        left = [] if now.owner is None else ["the owner"]
        left += [states.name_of(item) for item in now.objects if states.controller_uid(item) == uid]
    return [f"after the deletion of the owner are left: {left}"] if left else []


async def _clear(world: World) -> None:
    """Delete the objects that keep the simulator busy. The namespace itself ends with the control plane."""
    await world.drop_holds()
    for plural in (OWNERS[world.kind], VMS, VMIS):
        for item in await world.api.items(world.path(plural)):
            for name in states.finalizers_of(item):
                if name == ours.POOL_FINALIZER:
                    await world.remove_finalizer(plural, item, name)
        await world.api.send("DELETE", world.path(plural))


class Fresh:
    """A separate namespace and a separate controller. The owner is created there with the final spec."""

    def __init__(self, cluster: Cluster, kind: KindName) -> None:
        self._cluster = cluster
        self._kind = kind
        self._world: World | None = None
        self._state: State | None = None

    async def start(self, manifest: dict[str, object]) -> None:
        namespace = await self._cluster.new_namespace("fresh")
        self._world = World(self._cluster, self._kind, namespace, manifest)
        answer = await self._world.create_owner()
        assert answer.ok, answer.message
        await self._world.controller.start()

    async def state(self) -> State | None:
        """The state at rest, or None if rest is not reached yet. At rest, the controller is stopped."""
        if self._state is not None or self._world is None:
            return self._state
        if await _is_quiet(self._world, 0.8):
            state = await self._world.state()
            if _is_complete(state):
                self._state = state
                await self._world.controller.crash()
        return self._state

    async def close(self) -> None:
        if self._world is not None:
            await self._world.controller.crash()
            await _clear(self._world)


def _is_complete(state: State) -> bool:
    """Return True if the status is current, no child is missing, and each child that should run is ready."""
    assert state.owner is not None
    status = states.status_of(state.owner)
    running = [vm for vm in state.vms if vm["spec"].get("runStrategy", "Always") in ("Always", "RerunOnFailure")]
    ready = all(map(states.is_ready, (*running, *state.vmis)))
    seen = status.get("observedGeneration") == state.owner["metadata"]["generation"]
    ready = ready and status.get("readyReplicas", 0) == (len(running) if state.vms else len(state.vmis))
    return seen and ready and status.get("replicas", 0) == state.owner["spec"]["replicas"]


def is_settled(state: State) -> bool:
    """True if all work is finished. The owner's status is up to date, no VMI boots, and no object is being deleted.

    An object that a foreign finalizer holds does not count as unfinished work.
    """
    owner = state.owner
    status = states.status_of(owner or {})
    seen = owner is None or status.get("observedGeneration") == owner["metadata"]["generation"]
    going = [item for item in state.objects if states.is_deleting(item) and HOLD not in (states.finalizers_of(item))]
    held = {states.name_of(vm) for vm in state.vms if states.is_deleting(vm)}
    starting = [vm for vm in state.vms if vm["spec"].get("runStrategy") == "Always" and not states.is_ready(vm)]
    booting = [vmi for vmi in state.vmis if not states.is_ready(vmi)]
    return seen and not going and all(states.name_of(item) in held for item in (*starting, *booting))


def _is_halted(now: State, vmi: Object) -> bool:
    """True if the VMI has a VM, and the VM's run strategy does not start the VMI again after its end."""
    strategies = [vm["spec"].get("runStrategy") for vm in now.vms if states.name_of(vm) == states.name_of(vmi)]
    return bool(strategies) and strategies[0] not in ("Always", None)


def _last_writes(world: World, since: int = 0) -> Iterable[str]:
    writes = world.cluster.observer.writes(world.namespace)[since:]
    return [f"{r.verb} {r.resource}/{r.name} {r.subresource} {r.code}" for r in writes[-6:]]


def _template_annotations(vm: Object) -> dict[str, str]:
    return ((vm["spec"].get("template") or {}).get("metadata") or {}).get("annotations") or {}
