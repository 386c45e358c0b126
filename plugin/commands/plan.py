"""`kubectl vmherd plan`: the next writes of the controller, each with its reason, or what a new manifest would do."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml
from msgspec.structs import replace

from controller.kinds import KINDS, POOLS
from controller.kubevirt.oddities import oddities_in
from controller.pool.members.situation import Situation, situation_of
from controller.pool.scale import NAMES_TAKEN, plan_scale
from controller.replicas.conditions import REPLICA_FAILURE, counted, true_condition
from controller.runtime.dry_run import dry_run_report
from informers.errors import Forbidden
from plugin.command import Subjects, on_objects
from plugin.connection import Failed, Session
from plugin.flags import SERVER
from plugin.other_writer import note_about_other_writer
from plugin.printing import note, print_answers, print_lines, width
from plugin.reading import Reader, Target, snapshot_of
from plugin.subjects import Subject, parse_subjects
from plugin.views.disks import disk_lines, disk_steps
from plugin.views.edits import Document, Edit, edited, field
from plugin.views.forecast import forecast_lines, forecast_of
from plugin.views.scaling import with_owner
from plugin.views.upcoming import REPEATED
from plugin.writing import changed


@on_objects("plan", parse=lambda words: parse_subjects(words) if words else ())
async def command(session: Session, subjects: Subjects, filename: Sequence[str]) -> None:
    """Print the writes that the controller would send next, each with its reason. Later writes depend on them. With -f,
    print what changed manifests would do to each VM.
    """
    if filename and (subjects or session.flags.selector or session.flags.all_namespaces):
        raise click.UsageError("with -f, name no object and no selector: the manifest names the object")
    if not filename:
        await _next_writes(session, subjects or parse_subjects(()))
        return
    manifests, answers = read_manifests(filename), list[object]()
    for number, (place, manifest) in enumerate(manifests):
        if number and session.flags.is_text:
            print_lines([""])
        with session.going_on():
            answers.append(await _forecast(session, manifest, place))
    print_answers(answers, session.flags.output)


async def _next_writes(session: Session, subjects: Subjects) -> None:
    reader = Reader(session, session.scope, once=True)
    answers = []
    targets = await reader.some_targets(subjects, session.flags.selector)
    for target in targets:
        rules = await reader.rules([target], target.key.namespace)
        if rules is None:
            raise reader.refusal("there is no plan: ")
        snapshot = snapshot_of(rules, target.key)
        plan = rules.plan(snapshot)
        # An Event with `once` is sent with the first plan that has it, unless it tells of a write.
        fresh = tuple(each for each in plan.notices if each.after is not None or not each.once)
        report = dry_run_report(replace(plan, notices=fresh), status=False)
        disks = disk_lines(disk_steps(snapshot)) if target.kind is POOLS else []
        failure = true_condition(snapshot.owner.status, REPLICA_FAILURE) if report.actions else None
        refused = [f"{REPEATED}: {failure.message or failure.reason}"] if failure is not None else []
        if not session.flags.is_text:
            answer = {"actions": report.actions, "events": report.notices, "held": report.held, "disks": disks}
            answer |= {"refused": refused[0]} if refused else {}
            answers.append({"name": target.path, "namespace": target.key.namespace, **answer})
        else:
            name = f"{target.key.namespace}/{target.path}" if session.flags.all_namespaces else target.path
            texts = [*report.actions, *(f"event {notice}" for notice in report.notices)]
            texts += [*([f"held: {report.held}"] if report.held else []), *refused, *disks]
            print_lines(f"{name}: {text}" for text in texts or ["nothing"])
    print_answers(answers, session.flags.output, is_list=not all(each.name for each in subjects))
    await note_about_other_writer(session, targets)


async def _forecast(session: Session, manifest: Document, place: str) -> dict[str, object]:
    """Print what the manifest would do, and return it. The API server checks the manifest in a dry run, if the user may
    write the object.
    """
    subject = subject_in(manifest, place)
    namespace = field(manifest, ("metadata", "namespace"))
    namespace = namespace if isinstance(namespace, str) else session.namespace
    if session.flags.namespace not in ("", namespace):
        where = f"{place} has the namespace {namespace}"
        raise Failed(f"error: {where}, and the flag -n {session.flags.namespace}")
    reader, tried = Reader(session, namespace), Session(session, replace(session.flags, dry_run=SERVER))
    resource = await reader.resource(subject.kind, subject.group)
    path, target = f"{subject.kind.singular}.{resource.group}/{subject.name}", await reader.find(subject)
    try:
        if target is None:
            body = msgspec.json.encode({**manifest, "apiVersion": f"{resource.group}/{resource.version}"})
            await tried.create(resource, namespace, body)
            document: Document = manifest
        else:
            edits = apply_edits(target.document, manifest)
            document = edited(target.document, edits)
            document = await changed(tried, target, edits)
    except Forbidden as error:
        if " cannot " not in str(error):  # a policy or a quota refuses the manifest
            raise
        note(f"Note: the API server has not checked the manifest: {error}")
    placed = edited(document, [Edit(("metadata", "namespace"), namespace)])
    try:
        owner = resource.decode(raw := msgspec.json.encode(placed))
    except msgspec.DecodeError as error:
        raise Failed(f"error: the new spec is invalid: {error}") from error
    snapshot = await reader.snapshot(target or Target(subject.kind, resource, owner, raw))
    if snapshot is None:
        raise reader.refusal("there is no plan: ")
    future = with_owner(snapshot, owner)
    if target is None:
        beginning = f"{path} does not exist in the namespace {namespace}"
        lines, more = _forecast_of_new(subject, future, beginning)
    else:
        forecast = forecast_of(future)
        lines, more = [f"{path}:", *forecast_lines(forecast, width=width(session.flags))], msgspec.to_builtins(forecast)
    wrong = [each.text for each in future.wrong_annotations if not each.where]
    warnings = [*oddities_in(manifest), *wrong]
    if session.flags.is_text:
        print_lines(lines)
    for text in warnings:
        note(f"Warning: {text}")
    if target is not None:
        await note_about_other_writer(session, [target])
    return {"name": path, "namespace": namespace, "warnings": warnings, "exists": target is not None, **more}


def _forecast_of_new(subject: Subject, snapshot: Any, beginning: str) -> tuple[list[str], dict[str, object]]:
    """Return the lines and the JSON about a set or pool that does not exist."""
    replicas = snapshot.owner.spec.replicas
    creates = 1 if replicas is None else replicas
    member = "VM" if subject.kind is POOLS else "VMI"
    members = counted(creates, member, f"{member}s")
    text, more = "", dict[str, object](creates=creates)
    situation = situation_of(snapshot) if subject.kind is POOLS else None
    if isinstance(situation, Situation):
        standby = situation.target.standbys
        text = "".join(each.text for each in plan_scale(situation).waits if each.stall == NAMES_TAKEN)
        members += f", and {standby} on standby" if standby else ""
        more |= ({"standby": standby} if standby else {}) | ({"held": text} if text else {})
    return [f"{beginning}: it would be created with {members}{f', and wait: {text}' if text else ''}"], more


MANIFESTS: Final = (".yaml", ".yml", ".json")
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
CHANGED: Final = (("spec",), ("metadata", "labels"), ("metadata", "annotations"))


class _Loader(yaml.SafeLoader):
    """Reads a time as a text, as kubectl does."""


_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: str(node.value))


def read_manifests(files: Sequence[str]) -> list[tuple[str, Document]]:
    """Return the sets and pools in the files and folders, or in stdin for `-`, each with its place. A note names what
    else they have. Raise Failed with one line if a file cannot be read, or if there are no sets and pools.
    """
    found, others = list[tuple[str, Document]](), list[str]()
    for file in files:
        is_folder = Path(file).is_dir()
        for path in sorted(each for each in Path(file).iterdir() if each.suffix in MANIFESTS) if is_folder else [file]:
            place = "the manifest from stdin" if path == "-" else str(path)
            for document in _documents(place, path):
                if not isinstance(document, dict):
                    raise Failed(f"error: {place} is no manifest of a set or pool: it has no fields")
                if document.get("kind") in {kind.kind for kind in KINDS}:
                    found.append((place, document))
                else:
                    kind, name = field(document, ("kind",)), field(document, ("metadata", "name"))
                    others.append(f"{kind} {name} in {place}")
    if not found:
        kinds = " or ".join(kind.kind for kind in KINDS)
        raise Failed(
            f"error: a plan needs a {kinds}: {'; '.join(others) or 'there is no document in ' + ', '.join(files)}"
        )
    if others:
        note(f"Note: a plan is for sets and pools, so it leaves out {'; '.join(others)}")
    return found


def _documents(place: str, path: str | Path) -> Iterator[Any]:
    """Yield the documents of a file, and the items of each list in it."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
        loaded = [each for each in yaml.load_all(text, _Loader) if each is not None]
        documents = msgspec.json.decode(msgspec.json.encode(loaded))
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or " ".join(str(error).split())
        raise Failed(f"error: {place} cannot be read: {reason}") from error
    for each in documents:
        yield from each["items"] if isinstance(each, dict) and isinstance(each.get("items"), list) else [each]


def subject_in(manifest: Document, place: str) -> Subject:
    """Return the object that the manifest describes. Raise Failed if it is no set or pool, or without name or spec."""
    written, version, name = manifest.get("kind"), manifest.get("apiVersion"), field(manifest, ("metadata", "name"))
    group = str(version).partition("/")[0]
    kind = next((each for each in KINDS if each.kind == written and group in (each.group, each.own_group)), None)
    if kind is None:
        kinds = " or a ".join(each.kind for each in KINDS)
        raise Failed(f"error: {place} has the kind {written} of {version}: a plan needs a {kinds}")
    if not isinstance(name, str) or not name:
        raise Failed(f"error: {place} has no metadata.name")
    if not isinstance(field(manifest, ("spec",)), Mapping):
        raise Failed(f"error: {place} has no spec")
    return Subject(kind, group, name)


def apply_edits(document: Document, manifest: Document) -> tuple[Edit, ...]:
    """Return the changes that `kubectl apply` would make. A field that the last apply had, and the manifest has not, is
    removed. Fields that other writers set stay.
    """
    try:
        last = json.loads(field(document, ("metadata", "annotations", LAST_APPLIED)))
    except (TypeError, ValueError):
        last = {}
    edits = []
    for path in CHANGED:
        values = (field(each, path) for each in (document, last if isinstance(last, dict) else {}, manifest))
        current, old, new = (each if isinstance(each, Mapping) else {} for each in values)
        merged = _merged(current, old, new)
        if merged != current:
            edits.append(Edit(path, merged))
    return tuple(edits)


def _merged(current: Mapping[str, Any], old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in current.items() if name not in old or name in new}
    for name, value in new.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            before, past = (each.get(name) for each in (current, old))
            result[name] = _merged(
                before if isinstance(before, Mapping) else {}, past if isinstance(past, Mapping) else {}, value
            )
        else:
            result[name] = value
    return result
