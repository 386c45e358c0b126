"""`vmherd takeover`: tell KubeVirt's two loops to rest, so that `vmherd run --mode takeover` can work in their place.

One patch of the KubeVirt object does it, and `--undo` takes exactly that away. Done twice, either changes nothing; the
patches of others stay as they are. virt-operator then starts virt-controller anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from controller.commands.command import (
    DRY_RUN,
    LEASE_NAMESPACE,
    SAME,
    CommandFailed,
    carry_out,
    read,
    refuse_beside_a_leader,
)
from controller.config.options import SWITCH, Option
from controller.preflight.discovery import Absent, Hidden, find_kubevirt
from controller.preflight.virt_controller import KUBEVIRTS, VIRT_CONTROLLER, KubeVirt, hand_back, take_over
from informers.client import ApiClient
from informers.errors import Conflict
from informers.objects import PatchType

COMMAND: Final = "vmherd takeover"

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
    "the cluster": (
        SAME["kubeconfig"],
        SAME["context"],
        Option(
            "kubevirt_namespace", SAME["kubevirt_namespace"].kind, "the namespace of KubeVirt", unset="wherever it is"
        ),
    ),
    "what to do": (
        Option("undo", SWITCH, "hand replica sets and pools back to KubeVirt"),
        DRY_RUN,
        Option("force", SWITCH, "hand them back although a controller still works"),
    ),
    "the controller that must not work when it is undone": (SAME["leader_election_id"], LEASE_NAMESPACE),
}


def main(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises UsageError, CommandFailed; `--help` prints and raises SystemExit(0)."""
    settings = read(Settings(), GROUPS, command=COMMAND, argv=argv, env=env)
    carry_out(settings, run)


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
