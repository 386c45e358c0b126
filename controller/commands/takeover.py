"""`vmherd takeover`: stops KubeVirt's loops for replica sets and pools.

It adds one patch to the KubeVirt object, and `--undo` removes it. The operator of a HyperConverged object would undo
this patch. So the command then changes an annotation of that object, and its operator patches KubeVirt.
"""

import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from controller.assembly import merged_caches
from controller.commands.command import CommandFailed, carry_out, refuse_if_controller_runs
from controller.commands.shared_options import DRY_RUN, KUBEVIRT_NAMESPACE, LEASE, TAKEOVER_FORCE, UNDO
from controller.config.modes import Mode
from controller.config.options import Command, Option, chosen
from controller.config.settings import OPTIONS, Config
from controller.kinds import KINDS
from controller.preflight.versions import served_resource
from controller.runtime.actions import AnyResource
from controller.runtime.dry_run import dry_run_report
from controller.runtime.reconciler import Rules
from controller.takeover import hyperconverged
from controller.takeover.discovery import Absent, Hidden, find_kubevirt, is_served
from controller.takeover.hyperconverged import Unclear, hyperconvergeds, manager_of
from controller.takeover.virt_controller import KUBEVIRTS, VIRT_CONTROLLER, KubeVirt, take_over, undo_takeover
from informers.errors import Conflict, Forbidden, NotFound
from informers.http.client import ApiClient
from informers.meta import ObjectKey
from informers.objects import PatchType
from informers.resource import PartialObject, Resource

TRIES: Final = 4


class Settings(Config, frozen=True, kw_only=True):
    undo: bool = False
    dry_run: bool = False
    force: bool = False


class Change(Struct, frozen=True):
    """The object to patch, and the patch or None. `generation` is None if another operator patches KubeVirt."""

    resource: AnyResource
    key: ObjectKey
    patch: bytes | None
    type: PatchType
    generation: int | None = None

    @property
    def subject(self) -> str:
        return f"{self.resource.kind} {self.key}"


GROUPS: Final[Mapping[str, Sequence[Option]]] = {
    "The cluster": (OPTIONS["kubeconfig"], OPTIONS["context"], KUBEVIRT_NAMESPACE),
    "What to do": (UNDO, DRY_RUN, TAKEOVER_FORCE),
    "The controller that has to be stopped before --undo": LEASE,
}


@click.command("takeover", cls=Command, groups=GROUPS)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> None:
    """Stop KubeVirt's loops for replica sets and pools, so that `vmherd run --mode takeover` can replace them.

    One patch of the KubeVirt object does this, and --undo removes the patch. If a HyperConverged object manages
    KubeVirt, the command puts the patch into an annotation of that object.
    """
    carry_out(Settings(**chosen(ctx)), run)


async def run(client: ApiClient, settings: Settings) -> None:
    """Patch the KubeVirt object. With `--dry-run`, only print the patch. Raises CommandFailed, ApiError."""
    print("\n".join(_result_lines(await _change(client, settings), settings)))
    if settings.dry_run and not settings.undo:
        print("the first reconciliation of vmherd run --mode takeover would then do this:")
        now = datetime.now(UTC)  # noqa: TID251 - this command reads the wall clock only here
        print("\n".join(f"  {line}" for line in await preview(client, now=now)))


async def _change(client: ApiClient, settings: Settings) -> Change:
    """Patch the KubeVirt object, except with `--dry-run`, and return the change. Raises CommandFailed, ApiError."""
    if settings.undo and not settings.dry_run:
        why = "stop it first, because KubeVirt would reconcile the same objects"
        await refuse_if_controller_runs(client, settings, why=why, force=settings.force)
    for _ in range(TRIES - 1):
        try:
            return await _change_once(client, settings)
        except Conflict:
            continue
    return await _change_once(client, settings)


async def _change_once(client: ApiClient, settings: Settings) -> Change:
    kubevirt = await _get_kubevirt(client, settings.kubevirt_namespace)
    found = await _change_of(client, kubevirt, undo=settings.undo)
    if found.patch is None or settings.dry_run:
        return found
    answer = await client.patch(found.resource, found.key, found.patch, content_type=found.type.value)
    return replace(found, generation=KUBEVIRTS.decode(answer).metadata.generation) if found.generation else found


async def _change_of(client: ApiClient, kubevirt: KubeVirt, *, undo: bool) -> Change:
    """Return the change that stops KubeVirt's loops, or that starts the loops again. Raises CommandFailed."""
    name = manager_of(kubevirt)
    if not name:
        patch = undo_takeover(kubevirt) if undo else take_over(kubevirt)
        return Change(KUBEVIRTS, kubevirt.metadata.key, patch, PatchType.JSON, kubevirt.metadata.generation)
    key = ObjectKey(kubevirt.metadata.namespace, name)
    resource = await _served_hyperconvergeds(client)
    try:
        manager = resource.decode(await client.get(resource, key))
        patch = hyperconverged.undo_takeover(manager) if undo else hyperconverged.take_over(manager)
    except (Unclear, Forbidden, NotFound) as error:
        raise CommandFailed(_by_hand(key, error, undo=undo)) from error
    return Change(resource, key, patch, PatchType.MERGE)


async def _served_hyperconvergeds(client: ApiClient) -> Resource[PartialObject]:
    *newer, oldest = map(hyperconvergeds, hyperconverged.VERSIONS)
    for resource in newer:
        if await is_served(client, resource.group_path, resource.plural):
            return resource
    return oldest


def _by_hand(key: ObjectKey, error: Exception, *, undo: bool) -> str:
    """Return one line for the user: what HyperConverged does, the reason of the failure, and the command by hand."""
    edit = f"kubectl --namespace {key.namespace} edit {hyperconverged.PLURAL}.{hyperconverged.GROUP} {key.name}"
    what = "remove vmherd's step from" if undo else f"add the step {hyperconverged.step_to_add()} to"
    return (
        f"HyperConverged {key} manages KubeVirt and undoes direct patches, and vmherd cannot change its annotation: "
        f"{error}; {what} the annotation {hyperconverged.ANNOTATION} by hand: {edit}"
    )


async def _get_kubevirt(client: ApiClient, namespace: str) -> KubeVirt:
    """Return the only KubeVirt object in the namespace, or in any if it is empty. Raises CommandFailed."""
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


def _result_lines(change: Change, settings: Settings) -> list[str]:
    (namespace, name), subject = change.key, change.subject
    if settings.dry_run and change.patch is not None:
        kind = "json" if change.type is PatchType.JSON else "merge"
        command = f"kubectl --namespace {namespace} patch {change.resource.name} {name} --type {kind} --patch"
        return [f"would patch {subject} like this command:", f"{command} {shlex.quote(change.patch.decode())}"]
    if change.patch is None and settings.undo:
        return [f"{subject} has no patch of ours: nothing to undo"]
    done = f"{subject} has the patch already" if change.patch is None else f"patched {subject}"
    # virt-operator changes the Deployment some seconds after the patch. Then it reports the generation.
    observed = f"wait kubevirt {name} --for=jsonpath='{{.status.observedGeneration}}'={change.generation} --timeout=10m"
    waits = [*([observed] if change.generation else []), f"rollout status deployment {VIRT_CONTROLLER}"]
    commands = [f"kubectl --namespace {namespace} {wait}" for wait in waits]
    next_steps = [f"{label:13} {step}" for label, step in zip(("wait for it:", "and:"), commands, strict=False)]
    if settings.undo:
        return [f"{done}: {VIRT_CONTROLLER} restarts with its loops for replica sets and pools", *next_steps]
    return [
        f"{done}: {VIRT_CONTROLLER} restarts without its loops for replica sets and pools",
        *next_steps,
        "then:         vmherd run --mode takeover",
    ]


LISTED: Final = 10
TAKEOVER: Final = Config(mode=Mode.TAKEOVER.value)

TAKEN_OVER: Final = tuple(kind for kind in KINDS if kind.loop_flag)


async def preview(client: ApiClient, *, now: datetime) -> list[str]:
    """Return a line for each object of KubeVirt's kinds, with its planned actions and reasons. Raises ApiError."""
    lines = [line async for rules in _every_rules(client) for line in _lines_of(rules, now)]
    return lines or [f"there are {' and '.join(f'no {kind.noun}s' for kind in TAKEN_OVER)}"]


async def _every_rules(client: ApiClient) -> AsyncIterator[Rules[Any]]:
    modules = {kind: kind.module("wiring") for kind in TAKEN_OVER}
    caches = merged_caches(module.CACHES for module in modules.values())
    stores = {resource: await cache.read(client, resource) for resource, cache in caches.items()}
    for kind, module in modules.items():
        resource = await served_resource(client, kind)
        owners = await module.OWNER_CACHE.read(client, resource)
        yield module.rules_of(TAKEOVER, resource, owners, stores)


def _lines_of(rules: Rules[Any], now: datetime) -> Iterator[str]:
    """Yield the held reason, the Events, the first `LISTED` actions, and the number of further ones."""
    for key in sorted(owner.metadata.key for owner in rules.owners.values()):
        report = dry_run_report(rules.plan(rules.take_snapshot(key, now=now, settled=True)), status=False)
        texts = [f"held: {report.held}"] if report.held else [*report.notices]
        texts += report.actions[:LISTED]
        if len(report.actions) > LISTED:
            texts.append(f"and {len(report.actions) - LISTED} more")
        yield from (f"{rules.resource.plural} {key}: {text}" for text in texts or ["nothing"])
