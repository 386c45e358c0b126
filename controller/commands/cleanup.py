"""`vmherd cleanup`: take our finalizers off pools and VMs, so that nothing of ours keeps anybody from deleting them.

It is for the time after the controller, which does all of this itself while it runs. VMs and pools stay. What is being
deleted already may go for good, and then disks are looked after as the controller does (P10): a VM's disks lose it as
their owner first, where the pool asks for that, or where nobody can tell any more.

One thing only the controller can do: keep the disks of VMs that are about to be deleted with their pool. Such a pool is
left alone unless `--force` is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from controller.commands.command import (
    DRY_RUN,
    LEASE_NAMESPACE,
    SAME,
    CommandFailed,
    carry_out,
    read,
    refuse_beside_a_leader,
)
from controller.config.modes import Mode
from controller.config.options import SWITCH, Option
from controller.config.settings import Config, KindGroups, with_groups
from controller.kinds import KINDS, Kind
from controller.preflight.second_writer import decide_mode
from controller.runtime.executor import Executor, failed
from controller.runtime.expectations import Expectations
from controller.runtime.plan import Action, AnyResource, Cleanup, Outcome, Patch, Plan, Rejected, Unknown
from informers.client import ApiClient
from informers.errors import NotFound
from informers.meta import KubeObject, ObjectKey
from informers.resource import Resource

COMMAND: Final = "vmherd cleanup"
PAGE: Final = "500"
ROUNDS: Final = 3
"""Somebody may change an object between our look and our write: then we look again."""

CLEANED: Final = tuple(kind for kind in KINDS if kind.finalizer)
"""The kinds whose objects, and their children, carry a finalizer of ours."""

T = TypeVar("T", bound=KubeObject)


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
    "the cluster": (SAME["kubeconfig"], SAME["context"]),
    "what to clean up": (
        Option("mode", SAME["mode"].kind, "the mode that the controller ran in, from which the groups follow"),
        *(
            Option(
                kind.group_setting,
                SAME[kind.group_setting].kind,
                f"the API group of the {kind.name}s",
                unset=SAME[kind.group_setting].unset,
            )
            for kind in CLEANED
        ),
        Option("watch_namespaces", SAME["watch_namespaces"].kind, "the namespaces to look in", unset="all"),
        DRY_RUN,
        Option("force", SWITCH, "also while a controller works, and where disks cannot be kept"),
    ),
    "the controller that must not work any more": (SAME["leader_election_id"], LEASE_NAMESPACE),
}


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
        async for held in _listed(client, resource, namespace)
        if finalizer in (held.metadata.finalizers or ())
    ]


async def _listed(client: ApiClient, resource: Resource[T], namespace: str) -> AsyncIterator[T]:
    """All objects of a kind; none where the kind is not there any more."""
    params = {"limit": PAGE}
    while True:
        try:
            page = resource.decode_page(await client.request("GET", resource.path(namespace), params=params))
        except NotFound:
            return
        for item in page.items or ():
            yield item
        if not page.metadata.continue_:
            return
        params = {"limit": PAGE, "continue": page.metadata.continue_}


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
