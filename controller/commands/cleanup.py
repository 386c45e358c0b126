"""`vmherd cleanup`: take our finalizers off pools and VMs, so that nothing of ours keeps anybody from deleting them.

It is for the time after the controller, which does all of this itself while it runs. VMs and pools stay. What is being
deleted already may go for good, and then disks are looked after as the controller does (P10): a VM's disks lose it as
their owner first, where the pool asks for that, or where nobody can tell any more.

One thing only the controller can do: keep the disks of VMs that are about to be deleted with their pool. Such a pool is
left alone unless `--force` is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.finalizers import removal_patch
from controller.commands.command import (
    DRY_RUN,
    LEASE_NAMESPACE,
    SAME,
    CommandFailed,
    carry_out,
    list_all,
    read,
    refuse_beside_a_leader,
)
from controller.config.modes import Mode
from controller.config.options import SWITCH, Option
from controller.config.settings import Config, with_groups
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import POOL_GROUP, VMS, pool_resource
from controller.kubevirt.vm_types import POOL_KIND, VirtualMachine
from controller.kubevirt.vms import is_deleting, is_held
from controller.pool.disks import owner_removals_of_left_behind
from controller.pool.finalizer import ORPHAN
from controller.pool.policies import parse_scale_in
from controller.preflight.second_writer import decide_mode
from controller.runtime.executor import Executor, failed
from controller.runtime.expectations import Expectations
from controller.runtime.plan import Action, Outcome, Patch, PatchType, Plan, Rejected, Stage, Unknown
from informers.client import ApiClient
from informers.meta import ObjectKey, ObjectMeta, controller_of
from informers.resource import Resource

COMMAND: Final = "vmherd cleanup"
ROUNDS: Final = 3
"""Somebody may change an object between our look and our write: then we look again."""


class Settings(Struct, frozen=True, kw_only=True):
    kubeconfig: str = ""
    context: str = ""
    mode: str = Mode.AUTO.value
    pool_group: str = POOL_GROUP
    watch_namespaces: tuple[str, ...] = ()
    leader_election_id: str = "vmherd"
    leader_election_namespace: str = ""
    dry_run: bool = False
    force: bool = False


GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "the cluster": (SAME["kubeconfig"], SAME["context"]),
    "what to clean up": (
        Option(
            "mode", SAME["mode"].kind, "the mode that the controller ran in, from which the group of its pools follows"
        ),
        Option("pool_group", SAME["pool_group"].kind, "the API group of the pools", unset=SAME["pool_group"].unset),
        Option("watch_namespaces", SAME["watch_namespaces"].kind, "the namespaces to look in", unset="all"),
        DRY_RUN,
        Option("force", SWITCH, "also while a controller works, and where disks cannot be kept"),
    ),
    "the controller that must not work any more": (SAME["leader_election_id"], LEASE_NAMESPACE),
}


class Cleanup(Struct, frozen=True):
    """What to write, and the pools that are better left to the controller."""

    plan: Plan
    left: tuple[ObjectKey, ...] = ()


def main(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises UsageError, CommandFailed; `--help` prints and raises SystemExit(0)."""
    settings = read(Settings(), GROUPS, command=COMMAND, argv=argv, env=env, follow=with_groups)
    carry_out(settings, run)


async def run(client: ApiClient, settings: Settings) -> None:
    """Take the finalizers off, or say which. Raises CommandFailed, ApiError."""
    if not settings.dry_run:
        await refuse_beside_a_leader(
            client,
            name=settings.leader_election_id,
            namespace=settings.leader_election_namespace,
            why="uninstall it first, for it would put them back",
            force=settings.force,
        )
    decided = await decide_mode(client, Config(mode=settings.mode, pool_group=settings.pool_group))
    pools = pool_resource(decided.pool_group)
    done = 0
    for _ in range(ROUNDS):
        cleanup = plan_cleanup(*await _look(client, pools, settings), pools=pools, force=settings.force)
        if settings.dry_run:
            _print_plan(cleanup.plan)
            break
        outcomes = await _executor(client).carry_out(ObjectKey("", COMMAND), "", cleanup.plan)
        troubles = [outcome for outcome in outcomes if failed(outcome)]
        done += _print_done(outcomes)
        if not troubles:
            break
    else:
        raise CommandFailed(_words_of(troubles))
    if cleanup.left:
        names = ", ".join(map(str, cleanup.left))
        raise CommandFailed(
            f"left alone: {names}; being deleted with VMs whose disks are to be kept, which only a running controller "
            "can do; --force lets them go, disks and all"
        )
    if not settings.dry_run:
        print(f"{done} objects let go: no finalizer of ours is left on VMs and on {pools.name}")


def plan_cleanup(
    held_pools: Iterable[Pool], held_vms: Iterable[VirtualMachine], *, pools: Resource[Pool], force: bool
) -> Cleanup:
    """What lets these go, which are all that our finalizer holds: disks first, then VMs, then pools (P16)."""
    by_uid = {pool.metadata.uid: pool for pool in held_pools}
    vms = [vm for vm in held_vms if not _is_of_another_group(vm, pools.group)]
    left = set() if force else {uid for vm in vms if (uid := _owner_uid(vm)) and _needs_controller(by_uid.get(uid), vm)}
    going = [vm for vm in vms if _owner_uid(vm) not in left]
    leaving = [vm for vm in going if is_deleting(vm) and _preserves(by_uid.get(_owner_uid(vm)))]
    stages = (
        Stage(owner_removals_of_left_behind(leaving), essential=False),
        Stage(tuple(_removal(VMS, vm.metadata) for vm in going)),
        Stage(tuple(_removal(pools, pool.metadata) for uid, pool in by_uid.items() if uid not in left)),
    )
    plan = Plan(stages=tuple(stage for stage in stages if stage.actions))
    return Cleanup(plan, tuple(by_uid[uid].metadata.key for uid in by_uid if uid in left))


def _is_of_another_group(vm: VirtualMachine, group: str) -> bool:
    """Whether a pool of another controller has it: KubeVirt's finalizer has the same name."""
    owner = controller_of(vm.metadata)
    return owner is not None and owner.kind == POOL_KIND and owner.api_version.partition("/")[0] != group


def _owner_uid(vm: VirtualMachine) -> str:
    owner = controller_of(vm.metadata)
    return owner.uid if owner is not None and owner.kind == POOL_KIND else ""


def _preserves(pool: Pool | None) -> bool:
    """Whether disks are to outlive their VMs. Where nobody can tell, they are: what is kept can still be deleted."""
    scale_in = parse_scale_in(pool.spec) if pool is not None else None
    return scale_in is None or isinstance(scale_in, FieldError) or scale_in.preserve


def _needs_controller(pool: Pool | None, vm: VirtualMachine) -> bool:
    """Whether the VM is going to be deleted with its pool, and its disks with it, although they are to be kept."""
    if pool is None or pool.metadata.deletion_timestamp is None or is_deleting(vm):
        return False
    return _preserves(pool) and ORPHAN not in (pool.metadata.finalizers or ())


def _removal(resource: Resource[Any], meta: ObjectMeta) -> Patch:
    return Patch(
        resource=resource,
        key=meta.key,
        body=removal_patch(meta, POOL_FINALIZER),
        type=PatchType.JSON,
        why=f"take {POOL_FINALIZER} off",
        after_owner=meta.uid,
    )


async def _look(
    client: ApiClient, pools: Resource[Pool], settings: Settings
) -> tuple[list[Pool], list[VirtualMachine]]:
    """The pools and VMs that our finalizer holds."""
    namespaces = settings.watch_namespaces or ("",)
    held_pools = [
        pool
        for namespace in namespaces
        async for pool in list_all(client, pools, namespace)
        if POOL_FINALIZER in (pool.metadata.finalizers or ())
    ]
    held_vms = [vm for namespace in namespaces async for vm in list_all(client, VMS, namespace) if is_held(vm)]
    return held_pools, held_vms


class _Silent:
    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        """Nobody watches a command that ends."""


def _executor(client: ApiClient) -> Executor:
    nothing_awaited = Expectations({}, now=asyncio.get_running_loop().time, gave_up=_never)
    return Executor(client, nothing_awaited, controller=COMMAND, instruments=_Silent())


def _never() -> None:
    """Without caches there is nothing to wait for, and to give up on."""


def _print_plan(plan: Plan) -> None:
    for action in plan.actions:
        print(f"would: {_told(action)}")
    if not plan.actions:
        print("nothing of ours holds any pool or VM")


def _print_done(outcomes: Iterable[Outcome]) -> int:
    """Tell what was done, and return how many objects were let go."""
    done = [outcome.action for outcome in outcomes if not failed(outcome)]
    for action in done:
        print(_told(action))
    return sum(isinstance(action, Patch) for action in done)


def _told(action: Action) -> str:
    return f"{action.resource.name} {action.key}: {action.why}"


def _words_of(troubles: Sequence[Outcome]) -> str:
    """The first failure in the server's words, and how many there were."""
    for outcome in troubles:
        if isinstance(outcome, Rejected | Unknown):
            return f"{len(troubles)} writes failed, such as {_told(outcome.action)}: {outcome.message}"
    return f"{len(troubles)} writes were not tried"
