"""`vmherd cleanup`: take our finalizers off pools and VMs, so that nothing of ours keeps anybody from deleting them.

It is for the time after the controller, which does all of this itself while it runs. VMs and pools stay. What is being
deleted already may go for good, and then disks are looked after as the controller does (P10): a VM's disks lose it as
their owner first, where the pool asks for that, or where nobody can tell any more.

One thing only the controller can do: keep the disks of VMs that are about to be deleted with their pool. Such a pool is
left alone unless `--force` is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from controller.commands.command import (
    DRY_RUN,
    LEASE_NAMESPACE,
    CommandFailed,
    carry_out,
    list_all,
    refuse_beside_a_leader,
)
from controller.config.modes import Mode
from controller.config.options import Command, Namespaces, Option, Switch, chosen
from controller.config.settings import OPTIONS, Config, KindGroups, with_groups
from controller.config.types import GROUP
from controller.kinds import KINDS, Kind
from controller.preflight.second_writer import decide_mode
from controller.runtime.executor import Executor, failed
from controller.runtime.expectations import Expectations
from controller.runtime.plan import Action, AnyResource, Cleanup, Outcome, Patch, Plan, Rejected, Unknown
from informers.client import ApiClient
from informers.meta import KubeObject, ObjectKey
from informers.resource import Resource

COMMAND: Final = "vmherd cleanup"
ROUNDS: Final = 3
"""Somebody may change an object between our look and our write: then we look again."""


T = TypeVar("T", bound=KubeObject)

CLEANED: Final = tuple(kind for kind in KINDS if kind.finalizer)
"""The kinds whose objects, and their children, carry a finalizer of ours."""


class Settings(KindGroups, frozen=True, kw_only=True):
    kubeconfig: str = ""
    context: str = ""
    mode: str = Mode.AUTO.value
    watch_namespaces: tuple[str, ...] = ()
    leader_election_id: str = "vmherd"
    leader_election_namespace: str = ""
    dry_run: bool = False
    force: bool = False


GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "The cluster": (OPTIONS["kubeconfig"], OPTIONS["context"]),
    "What to clean up": (
        Option(
            "mode", OPTIONS["mode"].type, "the mode of the controller; the API groups follow from it", default=Mode.AUTO
        ),
        *(
            Option(
                kind.group_setting, GROUP, f"the API group of the {kind.name}s", unset=OPTIONS[kind.group_setting].unset
            )
            for kind in CLEANED
        ),
        Namespaces("watch_namespaces", "the namespaces to look in; can be repeated"),
        DRY_RUN,
        Switch("force", "continue while a controller works, and where disks cannot be kept"),
    ),
    "The controller that has to be stopped": (OPTIONS["leader_election_id"], LEASE_NAMESPACE),
}


@click.command("cleanup", cls=Command, groups=GROUPS)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Remove our finalizers from pools and VMs, after the controller is uninstalled. VMs and pools stay."""
    carry_out(Settings(**with_groups(chosen(ctx))), run)


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
    groups = {kind.group_setting: getattr(settings, kind.group_setting) for kind in KINDS}
    decided = await decide_mode(client, Config(mode=settings.mode, **groups))
    for kind in CLEANED:
        await _clean_up(client, kind, kind.resource(decided.group_of(kind)), settings)


async def _clean_up(client: ApiClient, kind: Kind[Any], owners: AnyResource, settings: Settings) -> None:
    """Take the finalizers off this kind's objects and their children, or say which."""
    plan_cleanup: Callable[..., Cleanup] = kind.module("cleanup").plan_cleanup
    children = kind.finalized
    done = 0
    for _ in range(ROUNDS):
        held_owners = await _held(client, owners, kind.finalizer, settings)
        held_children = await _held(client, children, kind.finalizer, settings) if children is not None else []
        cleanup = plan_cleanup(held_owners, held_children, owners, force=settings.force)
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
        print(f"{done} objects let go: no finalizer of ours is left on VMs and on {owners.name}")


async def _held(client: ApiClient, resource: Resource[T], finalizer: str, settings: Settings) -> list[T]:
    """The objects of this resource that our finalizer holds."""
    return [
        held
        for namespace in settings.watch_namespaces or ("",)
        async for held in list_all(client, resource, namespace)
        if finalizer in (held.metadata.finalizers or ())
    ]


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
