"""`kubectl vmherd takeover` and `cleanup`: the commands of `vmherd` for operators, with the flags of kubectl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from controller.commands import cleanup as controller_cleanup
from controller.commands import takeover as controller_takeover
from controller.commands.cleanup_options import CLEANUP_OPTIONS
from controller.commands.takeover_options import TAKEOVER_OPTIONS
from controller.config.settings import with_groups
from informers.client import ApiClient
from plugin.connection import JSON_TYPE, Session, carry_out
from plugin.flags import CLIENT, SERVER, Flags, Verb, flags_of, given
from plugin.printing import note
from plugin.verbs import flags_of_verb
from plugin.writing import params_of


class Client(ApiClient):
    """A client for the commands of the controller. It sends each request through the session of the plugin."""

    def __init__(self, session: Session) -> None:
        self._through = session

    @property
    def namespace(self) -> str:
        return self._through.namespace

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON_TYPE,
        accept: str = JSON_TYPE,
        timeout_s: float | None = None,
    ) -> bytes:
        if method != "GET":
            params = {**(params or {}), **params_of(self._through.flags)}
        return await self._through.request(
            method, path, params=params, body=body, content_type=content_type, accept=accept, timeout_s=timeout_s
        )


@click.command(
    "takeover",
    cls=Verb,
    own=flags_of_verb("takeover"),
    help="Stop KubeVirt's loops for replica sets and pools, so that `vmherd run --mode takeover` can replace them. One "
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
    carry_out(flags, lambda session: controller_takeover.run(Client(session), settings))


@click.command(
    "cleanup",
    cls=Verb,
    own=flags_of_verb("cleanup"),
    help="Remove vmherd's finalizers from pools and VMs, after the controller is uninstalled. VMs and pools stay. "
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
    carry_out(flags, lambda session: controller_cleanup.run(Client(session), settings))


def _announce(flags: Flags) -> None:
    if flags.dry_run == SERVER:
        note("Note: this is a server dry run: the API server checks each write and stores nothing.")
