"""`vmherd takeover`: stops KubeVirt's loops for replica sets and pools.

After that, `vmherd run --mode takeover` can reconcile these objects. The command adds one patch to the KubeVirt object,
and `--undo` removes this patch. virt-operator then restarts virt-controller. The command does not change other patches
in the KubeVirt object. A second call of the command changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
from msgspec import Struct

from controller.commands.command import (
    DRY_RUN,
    LEASE_NAMESPACE,
    CommandFailed,
    carry_out,
    refuse_if_controller_runs,
)
from controller.commands.takeover_preview import preview
from controller.config.options import Command, Option, Switch, chosen
from controller.config.settings import OPTIONS
from controller.config.types import ANY_NAMESPACE
from controller.preflight.discovery import Absent, Hidden, find_kubevirt
from controller.preflight.virt_controller import KUBEVIRTS, VIRT_CONTROLLER, KubeVirt, take_over, undo_takeover
from informers.client import ApiClient
from informers.errors import Conflict
from informers.objects import PatchType

TRIES: Final = 4
"""The maximum number of attempts to patch the KubeVirt object. An attempt fails if another client changes the object at
the same time.
"""


class Settings(Struct, frozen=True, kw_only=True):
    kubeconfig: str = ""
    context: str = ""
    kubevirt_namespace: str = ""
    leader_election_id: str = "vmherd"
    leader_election_namespace: str = ""
    undo: bool = False
    dry_run: bool = False
    force: bool = False


GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "The cluster": (
        OPTIONS["kubeconfig"],
        OPTIONS["context"],
        Option("kubevirt_namespace", ANY_NAMESPACE, "the namespace of KubeVirt", unset="any"),
    ),
    "What to do": (
        Switch("undo", "start KubeVirt's loops for replica sets and pools again"),
        DRY_RUN,
        Switch("force", "undo even if the controller still runs"),
    ),
    "The controller that has to be stopped before --undo": (OPTIONS["leader_election_id"], LEASE_NAMESPACE),
}


@click.command("takeover", cls=Command, groups=GROUPS)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Stop KubeVirt's loops for replica sets and pools, so that `vmherd run --mode takeover` can replace them.

    One patch of the KubeVirt object does this, and --undo removes the patch.
    """
    carry_out(Settings(**chosen(ctx)), run)


async def run(client: ApiClient, settings: Settings) -> None:
    """Patch the KubeVirt object. With `--dry-run`, only print the patch. Raises CommandFailed, ApiError."""
    if settings.undo and not settings.dry_run:
        await refuse_if_controller_runs(
            client,
            name=settings.leader_election_id,
            namespace=settings.leader_election_namespace,
            why="stop it first, because KubeVirt would reconcile the same objects",
            force=settings.force,
        )
    await _patch_with_retries(client, settings)
    if settings.dry_run and not settings.undo:
        print("the first reconciliation of vmherd run --mode takeover would then do this:")
        print("\n".join(f"  {line}" for line in await preview(client, now=_now())))


async def _patch_with_retries(client: ApiClient, settings: Settings) -> None:
    for _ in range(TRIES - 1):
        try:
            return await _patch_once(client, settings)
        except Conflict:
            continue
    return await _patch_once(client, settings)


async def _patch_once(client: ApiClient, settings: Settings) -> None:
    """Read the KubeVirt object, patch it and print the result. Raises Conflict if the object changed after the read."""
    kubevirt = await _get_kubevirt(client, settings.kubevirt_namespace)
    patch = undo_takeover(kubevirt) if settings.undo else take_over(kubevirt)
    if patch is not None and not settings.dry_run:
        await client.patch(KUBEVIRTS, kubevirt.metadata.key, patch, content_type=PatchType.JSON.value)
    print("\n".join(_result_lines(kubevirt, patch, settings)))


async def _get_kubevirt(client: ApiClient, namespace: str) -> KubeVirt:
    """Return the only KubeVirt object in the namespace. An empty namespace means any namespace.

    Raises CommandFailed if there is no KubeVirt object or more than one. Raises CommandFailed also if the user has no
    permission to list these objects.
    """
    installation = await find_kubevirt(client, namespace)
    if isinstance(installation, Absent):
        where = f"namespace {namespace}" if namespace else "this cluster"
        raise CommandFailed(f"there is no KubeVirt in {where}: use vmherd run --mode standalone")
    if isinstance(installation, Hidden):
        raise CommandFailed(installation.why)
    if len(installation.kubevirts) > 1:
        names = ", ".join(str(kubevirt.metadata.key) for kubevirt in installation.kubevirts)
        raise CommandFailed(f"there is more than one KubeVirt ({names}): choose one with --kubevirt-namespace")
    return installation.kubevirts[0]


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - this command reads the wall clock only here


def _result_lines(kubevirt: KubeVirt, patch: bytes | None, settings: Settings) -> list[str]:
    """Return the lines to print. They say what the command did, and what the user has to do next."""
    namespace, name = kubevirt.metadata.key
    subject = f"KubeVirt {namespace}/{name}"
    if settings.dry_run and patch is not None:
        command = f"kubectl --namespace {namespace} patch kubevirts.kubevirt.io {name} --type json --patch"
        return [f"would patch {subject} like this command:", f"{command} '{patch.decode()}'"]
    if patch is None and settings.undo:
        return [f"{subject} has no patch of ours: nothing to undo"]
    done = f"{subject} has the patch already" if patch is None else f"patched {subject}"
    rollout = f"kubectl --namespace {namespace} rollout status deployment {VIRT_CONTROLLER}"
    if settings.undo:
        return [
            f"{done}: {VIRT_CONTROLLER} restarts with its loops for replica sets and pools",
            f"wait for it: {rollout}",
        ]
    return [
        f"{done}: {VIRT_CONTROLLER} restarts without its loops for replica sets and pools",
        f"wait for it:  {rollout}",
        "then:         vmherd run --mode takeover",
    ]
