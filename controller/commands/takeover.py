"""`vmherd takeover`: tell KubeVirt's two loops to rest, so that `vmherd run --mode takeover` can work in their place.

One patch of the KubeVirt object does it, and `--undo` takes exactly that away. Done twice, either changes nothing; the
patches of others stay as they are. virt-operator then starts virt-controller anew.
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
    refuse_beside_a_leader,
)
from controller.commands.takeover_preview import preview
from controller.config.options import Command, Option, Switch, chosen
from controller.config.settings import OPTIONS
from controller.config.types import ANY_NAMESPACE
from controller.preflight.discovery import Absent, Hidden, find_kubevirt
from controller.preflight.virt_controller import KUBEVIRTS, VIRT_CONTROLLER, KubeVirt, hand_back, take_over
from informers.client import ApiClient
from informers.errors import Conflict
from informers.objects import PatchType

TRIES: Final = 4
"""How often the patch is made anew, while somebody else writes the KubeVirt object in between."""


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
        Switch("undo", "give replica sets and pools back to KubeVirt"),
        DRY_RUN,
        Switch("force", "give them back even if a controller still works on them"),
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
    """Patch the KubeVirt object, or say what would be sent. Raises CommandFailed, ApiError."""
    if settings.undo and not settings.dry_run:
        await refuse_beside_a_leader(
            client,
            name=settings.leader_election_id,
            namespace=settings.leader_election_namespace,
            why="stop it first, for it would fight with KubeVirt",
            force=settings.force,
        )
    await _patch_the_newest(client, settings)
    if settings.dry_run and not settings.undo:
        print("the first pass of vmherd run --mode takeover would then do this:")
        print("\n".join(f"  {line}" for line in await preview(client, now=_now())))


async def _patch_the_newest(client: ApiClient, settings: Settings) -> None:
    for _ in range(TRIES - 1):
        try:
            return await _patch_once(client, settings)
        except Conflict:
            continue
    return await _patch_once(client, settings)


async def _patch_once(client: ApiClient, settings: Settings) -> None:
    """On what was just read; again, by the caller, where somebody else wrote in between."""
    kubevirt = await _the_kubevirt(client, settings.kubevirt_namespace)
    patch = hand_back(kubevirt) if settings.undo else take_over(kubevirt)
    if patch is not None and not settings.dry_run:
        await client.patch(KUBEVIRTS, kubevirt.metadata.key, patch, content_type=PatchType.JSON.value)
    print("\n".join(_words(kubevirt, patch, settings)))


async def _the_kubevirt(client: ApiClient, namespace: str) -> KubeVirt:
    """The one that there is. Raises CommandFailed."""
    seen = await find_kubevirt(client, namespace)
    if isinstance(seen, Absent):
        where = f"namespace {namespace}" if namespace else "this cluster"
        raise CommandFailed(f"there is no KubeVirt in {where}, and so nothing to take over: run --mode standalone")
    if isinstance(seen, Hidden):
        raise CommandFailed(seen.why)
    if len(seen.kubevirts) > 1:
        names = ", ".join(str(kubevirt.metadata.key) for kubevirt in seen.kubevirts)
        raise CommandFailed(f"there is more than one KubeVirt ({names}): say which with --kubevirt-namespace")
    return seen.kubevirts[0]


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - a command's wall clock enters here


def _words(kubevirt: KubeVirt, patch: bytes | None, settings: Settings) -> list[str]:
    """What was done, or would be, and what comes next."""
    namespace, name = kubevirt.metadata.key
    subject = f"KubeVirt {namespace}/{name}"
    if settings.dry_run and patch is not None:
        command = f"kubectl --namespace {namespace} patch kubevirts.kubevirt.io {name} --type json --patch"
        return [f"would patch {subject}, as this does:", f"{command} '{patch.decode()}'"]
    if patch is None and settings.undo:
        return [f"{subject} has no patch of ours: nothing to undo"]
    done = f"{subject} has the patch already" if patch is None else f"patched {subject}"
    rollout = f"kubectl --namespace {namespace} rollout status deployment {VIRT_CONTROLLER}"
    if settings.undo:
        return [f"{done}: {VIRT_CONTROLLER} starts anew, and works on replica sets and pools", f"to see it: {rollout}"]
    return [
        f"{done}: {VIRT_CONTROLLER} starts anew without its loops for replica sets and pools",
        f"wait for it:  {rollout}",
        "then:         vmherd run --mode takeover",
    ]
