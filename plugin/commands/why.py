"""`kubectl vmherd why`: why an object is not as its spec asks, and what comes next."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from controller.events.event import EVENTS
from controller.kubevirt.resources import DATA_VOLUMES
from controller.kubevirt.vms import disk_names_of
from controller.pool.members.snapshot import Snapshot
from controller.runtime.reconciler import API_WARNING
from informers.errors import Forbidden, NotFound
from plugin import clock
from plugin.command import on_objects
from plugin.connection import Session
from plugin.members import Named, named_members, owners_of, parse_shown
from plugin.other_writer import leader_in, other_writer
from plugin.printing import note, notes_about_missing, print_answers, print_lines, print_reasons, width
from plugin.reading import Reader, Target
from plugin.subjects import EVERY_TYPE
from plugin.views.reasons import LEADER_UNKNOWN, Leader, Reason, is_well, member_line, reasons_of, summary_of, why_lines
from plugin.views.situation import Situation
from plugin.views.tables import age
from plugin.views.upcoming import Upcoming, upcoming_of

LISTED_WARNINGS = 3
FILLING = frozenset({"Provisioning", "WaitingForVolumeBinding", "DataVolumeError"})
ASKED = 3
"""At most so many VMs are looked at, as one answer names no more."""


@on_objects("why", metavar="[TYPE/NAME]", parse=lambda words: parse_shown(words) if words else EVERY_TYPE)
async def command(session: Session, named: Named, leader_election_id: str) -> None:
    """Say why an object is not as its spec asks: what waits, what causes it, and what comes next. vm/NAME is explained
    with its owner. Without a name, only objects that are not well are shown.
    """
    reader = Reader(session, session.scope, once=True)
    subjects, members = await owners_of(session, named)
    read = reader.visible_targets if named == EVERY_TYPE else reader.some_targets
    targets = await read(subjects, session.flags.selector)
    leader = await leader_in(reader, leader_election_id)
    warned = await server_warnings(session)
    answers, well, is_one = [], 0, all(subject.name for subject in subjects)
    # Many objects have one leader, which is named once: first if it is not alive, or else at the end.
    of_all = leader.text if leader is not None else LEADER_UNKNOWN
    line = [f"leader: {of_all}"] if not is_one and session.flags.is_text else []
    if leader is not None and not leader.is_alive:
        print_lines(line)
        line = []
    for target in targets:
        flags = f" -n {target.key.namespace}" if session.flags.namespace or not session.scope else ""
        about_it = warned.get(target.owner.metadata.uid, ())
        situation, reasons = await explain(session, reader, target, leader, warned=about_it, flags=flags)
        lines = [member_line(situation, each) for each in named_members(situation, members) if target.path in members]
        if not is_one and is_well(situation, reasons):
            well += 1
            continue
        if not session.flags.is_text:
            answer = {"summary": summary_of(situation), "reasons": reasons, **({"members": lines} if lines else {})}
            answers.append({"name": target.path, "namespace": target.key.namespace, **answer})
            continue
        shown = reasons if is_one else [each for each in reasons if each.text != of_all]
        print_reasons(
            [*lines, *why_lines(situation, shown, all_namespaces=not session.scope, width=width(session.flags))]
        )
    print_answers(answers, session.flags.output, is_list=not is_one)
    if not is_one and session.flags.is_text:
        if not targets:
            await reader.check_served(subjects)
            note(f"No resources found{session.where}.")
        if well:
            print_lines([f"{well} of {len(targets)} objects are as their specs ask."])
        print_lines(line)
    notes_about_missing(reader.missing.values())


async def explain(
    session: Session, reader: Reader, target: Target, leader: Leader | None, *, warned: Sequence[str], flags: str
) -> tuple[Situation, tuple[Reason, ...]]:
    """The arguments after the target are those of `reasons_of`. The reader remembers what it has read (`once`)."""
    if target.resource not in reader.other_writers:
        reader.other_writers[target.resource] = await other_writer(session, target, reader.missing)
    writer = reader.other_writers[target.resource]
    snapshot = await reader.snapshot(target)
    situation = await with_disk_problems(session, reader.situation_in(target, snapshot), snapshot)
    upcoming: tuple[Upcoming, ...] = ()
    with suppress(Exception):  # rules that fail foresee nothing, and the situation says that they fail
        upcoming = upcoming_of(snapshot) if snapshot is not None else ()
    now = clock.now()
    return situation, reasons_of(
        situation, leader, now, upcoming=upcoming, other_writer=writer, warned=warned, flags=flags
    )


async def server_warnings(session: Session) -> dict[str, list[str]]:
    """Return the warnings by the UID of the object, or nothing if the user may not read Events."""
    path, params = EVENTS.path(session.scope), {"fieldSelector": f"reason={API_WARNING}"}
    try:
        answer = await session.request("GET", path, params=params)
    except Forbidden:
        return {}
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in msgspec.json.decode(answer)["items"] or ():
        found.setdefault(each["involvedObject"].get("uid", ""), []).append(each)
    return {uid: warnings_in(events) for uid, events in found.items()}


def warnings_in(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the last of these warnings of the API server about one object, each with its age."""
    texts = []
    for each in events[-LISTED_WARNINGS:]:
        last = each.get("lastTimestamp")
        texts.append(f"{each.get('message', '')} ({age(last and datetime.fromisoformat(last), clock.now())} ago)")
    return texts


async def with_disk_problems(session: Session, situation: Situation, snapshot: Any) -> Situation:
    """Return the situation of a pool in which the VMs that wait for disks say what CDI says of these disks. Only the
    DataVolumes say it: KubeVirt's VM says that it has no VMI.
    """
    waiting = [each.name for each in situation.members if each.problem and each.status in FILLING][:ASKED]
    if not waiting or not isinstance(snapshot, Snapshot):
        return situation
    problems = {
        each.vm.metadata.name: await _problem(session, situation.identity.namespace, disk_names_of(each.vm))
        for each in snapshot.members
        if each.vm.metadata.name in waiting
    }
    members = (replace(each, problem=problems.get(each.name) or each.problem) for each in situation.members)
    return replace(situation, members=tuple(members))


async def _problem(session: Session, namespace: str, disks: tuple[str, ...]) -> str:
    for name in disks:
        try:
            answer = await session.request("GET", DATA_VOLUMES.path(namespace, name))
        except (Forbidden, NotFound):  # the disk is a claim without a DataVolume, or not made yet
            continue
        status = msgspec.json.decode(answer).get("status") or {}
        if status.get("phase") != "Succeeded":
            return f"disk {name}: {told_by(status)}"
    return ""


def told_by(status: Mapping[str, Any]) -> str:
    """Return the phase of a DataVolume, its progress, and the first message of a condition that is not met."""
    unmet = (each for each in status.get("conditions") or () if each.get("status") == "False")
    message = next((text for each in unmet if (text := each.get("message"))), "")
    progress = status.get("progress", "")
    texts = (status.get("phase"), progress if "%" in progress else "", message)
    return ", ".join(filter(None, texts)) or "no phase yet"
