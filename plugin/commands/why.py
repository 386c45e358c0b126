"""`kubectl vmherd why`: why an object is not as its spec asks, and what comes next."""

from __future__ import annotations

from typing import Any

import click

from controller.leaderelection.lease import LEASES
from informers.errors import Forbidden
from plugin import clock
from plugin.connection import Session, carry_out
from plugin.flags import Verb, flags_of
from plugin.other_writer import other_writer
from plugin.printing import notes_about_missing, print_reasons, print_value
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, check_scope, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.reasons import Leader, leader_of, reasons_of, summary_of, why_lines
from plugin.views.upcoming import upcoming_of


@click.command(
    "why",
    cls=Verb,
    own=FLAGS["why"],
    help="Say why an object is not as its spec asks: what waits, what causes it, and what comes next.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], lease_name: str, **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    check_scope(subjects, all_namespaces=flags.all_namespaces)
    carry_out(flags, lambda session: run(session, subjects, lease_name))


async def run(session: Session, subjects: tuple[Subject, ...], lease_name: str) -> None:
    """Print the reasons for each object. Raise Failed, ApiError."""
    reader = Reader(session, session.scope, once=True)
    targets = await reader.some_targets(subjects, session.flags.selector)
    leader = await _leader(session, reader, lease_name)
    answers = []
    for target in targets:
        snapshot = await reader.snapshot(target)
        situation = reader.situation_in(target, snapshot)
        reasons = reasons_of(
            situation,
            leader,
            clock.now(),
            upcoming=upcoming_of(snapshot) if snapshot is not None else (),
            other_writer=await other_writer(session, target, reader.missing),
            flags=f" -n {target.key.namespace}" if session.flags.namespace or not session.scope else "",
        )
        if session.flags.output:
            namespace = target.key.namespace
            answers.append(
                {"name": target.path, "namespace": namespace, "summary": summary_of(situation), "reasons": reasons}
            )
        else:
            print_reasons(why_lines(situation, reasons, all_namespaces=not session.scope))
    if answers:
        print_value(answers[0] if len(answers) == 1 else answers, session.flags.output)
    notes_about_missing(reader.missing.values())


async def _leader(session: Session, reader: Reader, name: str) -> Leader | None:
    """Return the controller's lease, or None if the user may not read leases."""
    try:
        answer = await session.request("GET", LEASES.path(), params={"fieldSelector": f"metadata.name={name}"})
    except Forbidden as error:
        reader.missing[LEASES.name] = str(error)
        return None
    leases = [each for each in LEASES.decode_page(answer).items or () if each.metadata.name == name]
    return leader_of(leases, clock.now())
