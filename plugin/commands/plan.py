"""`kubectl vmherd plan`: the next writes of the controller, each with its reason."""

from collections.abc import Iterable

from controller.kinds import POOLS
from controller.runtime.dry_run import DryRunReport, dry_run_report
from plugin.command import Subjects, on_objects
from plugin.connection import Session
from plugin.other_writer import note_about_other_writer
from plugin.printing import print_answers, print_lines
from plugin.reading import Reader, snapshot_of
from plugin.views.disks import disk_lines, disk_steps


@on_objects(
    "plan",
    "Print the writes that the controller would send next, each with its reason. Later writes depend on them.",
)
async def command(session: Session, subjects: Subjects) -> None:
    reader = Reader(session, session.scope, once=True)
    answers = []
    targets = await reader.some_targets(subjects, session.flags.selector)
    for target in targets:
        rules = await reader.rules(target.kind, target.resource, [target.owner], target.key.namespace)
        if rules is None:
            raise reader.refusal("there is no plan: ")
        snapshot = snapshot_of(rules, target.key)
        report = dry_run_report(rules.plan(snapshot), status=False)
        disks = disk_lines(disk_steps(snapshot)) if target.kind is POOLS else []
        if session.flags.output:
            answer = {"actions": report.actions, "held": report.held, "disks": disks}
            answers.append({"name": target.path, "namespace": target.key.namespace, **answer})
        else:
            name = f"{target.key.namespace}/{target.path}" if session.flags.all_namespaces else target.path
            print_lines(plan_lines(name, report, disks))
    print_answers(answers, session.flags.output)
    await note_about_other_writer(session, targets)


def plan_lines(subject: str, report: DryRunReport, disks: Iterable[str] = ()) -> list[str]:
    """Return one line for each write and each Event of the plan, and one line for the writes that wait.

    `disks` has a line for each VM whose disks the update deletes or expands, now or later.
    """
    texts = [*report.actions, *(f"event {notice}" for notice in report.notices)]
    if report.held:
        texts.append(f"held: {report.held}")
    texts += disks
    return [f"{subject}: {text}" for text in texts or ["nothing"]]
