"""`kubectl vmherd takeover` and `cleanup`: the commands of `vmherd` for operators, with the flags of kubectl."""

from typing import Any

import click

from controller.commands import cleanup as controller_cleanup
from controller.commands import takeover as controller_takeover
from controller.commands.cleanup_options import CLEANUP_OPTIONS
from controller.commands.shared_options import TAKEOVER_OPTIONS
from controller.config.settings import with_groups
from plugin.command import verb
from plugin.connection import carry_out
from plugin.flags import CLIENT, SERVER, Flags, flags_of, given
from plugin.printing import note


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
    carry_out(flags, lambda session: controller_takeover.run(session, settings))


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
    carry_out(flags, lambda session: controller_cleanup.run(session, settings))


def _announce(flags: Flags) -> None:
    if flags.dry_run == SERVER:
        note("Note: this is a server dry run: the API server checks each write and stores nothing.")
