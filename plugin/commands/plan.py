"""`kubectl vmherd plan`: the next writes of the controller, each with its reason."""

from __future__ import annotations

from typing import Any

import click

from controller.kinds import POOLS
from controller.runtime.dry_run import dry_run_report
from plugin.connection import Failed, Session, carry_out
from plugin.flags import Verb, flags_of
from plugin.other_writer import note_about_other_writer
from plugin.printing import print_lines, print_value
from plugin.reading import Reader, snapshot_of
from plugin.subjects import METAVAR, Subject, check_scope, parse_subjects
from plugin.verbs import FLAGS
from plugin.views.disks import disk_lines, disk_steps
from plugin.views.plans import plan_lines


@click.command(
    "plan",
    cls=Verb,
    own=FLAGS["plan"],
    help="Print the writes that the controller would send next, each with its reason. Later writes depend on them.",
)
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    check_scope(subjects, all_namespaces=flags.all_namespaces)
    carry_out(flags, lambda session: run(session, subjects))


async def run(session: Session, subjects: tuple[Subject, ...]) -> None:
    """Print the plan of each object. Raise Failed, ApiError."""
    reader = Reader(session, session.scope, once=True)
    answers = []
    targets = await reader.some_targets(subjects, session.flags.selector)
    for target in targets:
        rules = await reader.rules(target.kind, target.resource, [target.owner], target.key.namespace)
        if rules is None:
            raise Failed("".join(f"error: there is no plan: {line}\n" for line in reader.missing.values()))
        snapshot = snapshot_of(rules, target.key)
        report = dry_run_report(rules.plan(snapshot), status=False)
        disks = disk_lines(disk_steps(snapshot)) if target.kind is POOLS else []
        if session.flags.output:
            answer = {"actions": report.actions, "held": report.held, "disks": disks}
            answers.append({"name": target.path, "namespace": target.key.namespace, **answer})
        else:
            name = f"{target.key.namespace}/{target.path}" if session.flags.all_namespaces else target.path
            print_lines(plan_lines(name, report, disks))
    if answers:
        print_value(answers[0] if len(answers) == 1 else answers, session.flags.output)
    await note_about_other_writer(session, targets)
