"""`kubectl vmherd takeover` and `cleanup`: the commands of `vmherd` for operators, with the flags of kubectl."""

from typing import Any

import click
import msgspec
from msgspec import Struct

from controller.commands import cleanup as controller_cleanup
from controller.commands import takeover as controller_takeover
from controller.commands.cleanup_options import CLEANUP_OPTIONS
from controller.commands.shared_options import TAKEOVER_OPTIONS
from controller.config.settings import with_groups
from controller.runtime.actions import Action, AnyResource
from informers.meta import ObjectKey
from plugin.command import verb
from plugin.connection import Session, carry_out
from plugin.flags import CLIENT, NAME, SERVER, Flags, flags_of, given
from plugin.printing import note, print_lines, print_value


class Takeover(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The change of `takeover` for programs. `patch` is None if the object needs no change.

    `preview` has what the first reconciliation after the takeover would do. Only a dry run on the client has it.
    """

    name: str
    namespace: str
    patch_type: str
    patch: msgspec.Raw | None
    preview: list[str] | None = None


class Changed(Struct, frozen=True, kw_only=True, rename="camel"):
    """One write of `cleanup` for programs. `change` says what the write changes in the object."""

    name: str
    namespace: str
    change: str


def path_of(resource: AnyResource, key: ObjectKey) -> str:
    """Return the name of an object in the output of kubectl."""
    type_ = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return f"{type_.lower()}/{key.name}"


@verb(
    "takeover",
    "Stop KubeVirt's loops for replica sets and pools, so that `vmherd run --mode takeover` can replace them. One "
    "patch of the KubeVirt object does this, and --undo removes the patch.",
)
@click.pass_context
def takeover(ctx: click.Context, /, **values: Any) -> None:
    flags = flags_of(values)
    chosen = given(ctx, TAKEOVER_OPTIONS)
    if flags.namespace:
        chosen.setdefault("kubevirt_namespace", flags.namespace)
    settings = controller_takeover.Settings(**chosen, dry_run=flags.dry_run == CLIENT)
    _announce(flags)
    carry_out(flags, lambda session: take_over(session, settings))


async def take_over(session: Session, settings: controller_takeover.Settings) -> None:
    """Patch the KubeVirt object, and print the patch. Raise CommandFailed, ApiError."""
    output = session.flags.output
    if not output:
        await controller_takeover.run(session, settings)
        return
    change = await controller_takeover.change(session, settings)
    if output == NAME:
        print_lines([path_of(change.resource, change.key)])
        return
    previews = controller_takeover.has_preview(settings)
    document = Takeover(
        name=path_of(change.resource, change.key),
        namespace=change.key.namespace,
        patch_type=change.type.name.lower(),
        patch=None if change.patch is None else msgspec.Raw(change.patch),
        preview=await controller_takeover.preview_lines(session) if previews else None,
    )
    print_value(document, output)


@verb(
    "cleanup",
    "Remove vmherd's finalizers from pools and VMs, after the controller is uninstalled. VMs and pools stay. "
    "Without -n, all namespaces are cleaned up.",
)
@click.pass_context
def cleanup(ctx: click.Context, /, **values: Any) -> None:
    flags = flags_of(values)
    chosen = given(ctx, CLEANUP_OPTIONS)
    if flags.namespace:
        chosen.setdefault("watch_namespaces", (flags.namespace,))
    settings = controller_cleanup.Settings(**with_groups(chosen), dry_run=flags.dry_run == CLIENT)
    _announce(flags)
    carry_out(flags, lambda session: clean_up(session, settings))


async def clean_up(session: Session, settings: controller_cleanup.Settings) -> None:
    """Remove the finalizers. Print the changed objects, also if the cleanup fails. Raise CommandFailed, ApiError."""
    output = session.flags.output
    if not output:
        await controller_cleanup.run(session, settings)
        return
    written: list[Action] = []
    try:
        await controller_cleanup.run(session, settings, written)
    finally:
        changes = [
            Changed(name=path_of(each.resource, each.key), namespace=each.key.namespace, change=each.why)
            for each in written
        ]
        unique = tuple(dict.fromkeys(changes))  # a write that was repeated counts once
        if output == NAME:
            print_lines(each.name for each in unique)
        else:
            print_value(unique, output)


def _announce(flags: Flags) -> None:
    if flags.dry_run == SERVER:
        note("Note: this is a server dry run: the API server checks each write and stores nothing.")
