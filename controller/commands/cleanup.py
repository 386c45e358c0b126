"""`vmherd cleanup`: removes vmherd's finalizers from pools and VMs, so that users can delete these objects.

The end of a deletion also deletes the disks that the VM owns. So the command first removes the VM's ownerReference from
each disk if the pool preserves disks, does not exist or has an invalid setting. Only a controller can keep the disks of
a pool that is being deleted with its VMs, so without `--force` they do not change.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import click

from controller.apimachinery.indexes import by_owner_uid
from controller.commands.cleanup_options import CLEANED, FORCE, SCOPE
from controller.commands.command import CommandFailed, carry_out, refuse_if_controller_runs
from controller.commands.shared_options import DRY_RUN, LEASE
from controller.config.options import Command, Option, chosen
from controller.config.settings import OPTIONS, Config, with_groups
from controller.kinds import Kind
from controller.preflight.versions import served_resource
from controller.runtime.actions import Action, AnyResource, Outcome, Patch, Rejected, Unknown
from controller.runtime.execute.births import Owner
from controller.runtime.execute.executor import Executor, failed
from controller.runtime.result import Cleanup
from controller.runtime.settle.expectations import Expectations
from controller.takeover.discovery import raw_items
from controller.takeover.second_writer import decide_mode
from informers.http.client import ApiClient
from informers.meta import KubeObject, ObjectKey
from informers.resource import Resource

COMMAND: Final = "vmherd cleanup"
ROUNDS: Final = 3


T = TypeVar("T", bound=KubeObject)


class Settings(Config, frozen=True, kw_only=True):
    dry_run: bool = False
    force: bool = False


GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "The cluster": (OPTIONS["kubeconfig"], OPTIONS["context"]),
    "What to clean up": (*SCOPE, DRY_RUN, FORCE),
    "The controller that has to be stopped": LEASE,
}


@click.command("cleanup", cls=Command, groups=GROUPS)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Remove vmherd's finalizers from pools and VMs, after the controller is uninstalled. VMs and pools stay."""
    carry_out(Settings(**with_groups(chosen(ctx))), run)


async def run(client: ApiClient, settings: Settings) -> None:
    """With `--dry-run`, only print the planned writes. Raises CommandFailed, ApiError."""
    if not settings.dry_run:
        why = "uninstall it first, because it would add the finalizers again"
        await refuse_if_controller_runs(client, settings, why=why, force=settings.force)
    decided = await decide_mode(client, settings)
    for kind in CLEANED:
        owners = await served_resource(client, kind, decided.group_of(kind))
        await _clean_up(client, kind, owners, settings)


async def _clean_up(client: ApiClient, kind: Kind[Any], owners: AnyResource, settings: Settings) -> None:
    """Remove the finalizers of one kind's objects and of their children. With `--dry-run`, only show the changes."""
    plan_cleanup: Callable[..., Cleanup] = kind.module("cleanup").plan_cleanup
    children = kind.finalized
    done = 0
    for _ in range(ROUNDS):
        owners_with_finalizer = await _with_finalizer(client, owners, kind.finalizer, settings)
        uids = frozenset(owner.metadata.uid for owner in owners_with_finalizer)
        their_children = (
            await _with_finalizer(client, children, kind.finalizer, settings, owners=uids)
            if children is not None
            else []
        )
        cleanup = plan_cleanup(owners_with_finalizer, their_children, owners, force=settings.force)
        if settings.dry_run:
            planned = [f"would: {_describe(action)}" for action in cleanup.plan.actions]
            print("\n".join(planned or ["no pool and no VM has a finalizer of vmherd"]))
            break
        outcomes = await _executor(client).carry_out(Owner(ObjectKey("", COMMAND), ""), cleanup.plan)
        failures = [outcome for outcome in outcomes if failed(outcome)]
        for action in (outcome.action for outcome in outcomes if not failed(outcome)):
            print(_describe(action))
            done += isinstance(action, Patch)
        if not failures:
            break
    else:
        raise CommandFailed(_describe_failures(failures))
    if cleanup.left:
        names = ", ".join(map(str, cleanup.left))
        raise CommandFailed(
            f"not cleaned up: {names}; these objects are being deleted, and only a running controller can keep the "
            "disks of their VMs; with --force the disks are deleted together with the VMs"
        )
    if not settings.dry_run:
        cleaned = f"{done} object{'' if done == 1 else 's'} cleaned up"
        print(f"{cleaned}: no finalizer of vmherd is left on VMs and on {owners.name}")


async def _with_finalizer(
    client: ApiClient,
    resource: Resource[T],
    finalizer: str,
    settings: Settings,
    *,
    owners: frozenset[str] = frozenset(),
) -> list[T]:
    """Return also the objects whose controller has one of the UIDs in `owners`."""
    return [
        each
        for namespace in settings.namespaces
        async for raw in raw_items(client, resource.path(namespace))
        for each in (resource.decode(raw),)
        if finalizer in (each.metadata.finalizers or ()) or owners.intersection(by_owner_uid(each))
    ]


class _NoMetrics:
    def acted(self, controller: str, *, action: str, outcome: str) -> None:
        """Do nothing, because the command has no metrics page."""


def _executor(client: ApiClient) -> Executor:
    # The command has no caches, so it never waits until a cache shows a write.
    expectations = Expectations({}, now=asyncio.get_running_loop().time, gave_up=lambda: None)
    return Executor(client, expectations, controller=COMMAND, instruments=_NoMetrics())


def _describe(action: Action) -> str:
    return f"{action.resource.name} {action.key}: {action.why}"


def _describe_failures(failures: Sequence[Outcome]) -> str:
    for outcome in failures:
        if isinstance(outcome, Rejected | Unknown):
            return f"{len(failures)} writes failed, such as {_describe(outcome.action)}: {outcome.message}"
    return f"{len(failures)} writes were not sent"
