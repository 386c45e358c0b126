"""`kubectl vmherd why`: why an object is not as its spec asks, and what comes next."""

from controller.leaderelection.lease import LEASES
from controller.leaderelection.other_leader import leases_named
from informers.errors import Forbidden
from plugin import clock
from plugin.command import Subjects, on_objects
from plugin.connection import Session
from plugin.other_writer import other_writer
from plugin.printing import notes_about_missing, print_answers, print_reasons
from plugin.reading import Reader
from plugin.views.reasons import Leader, leader_of, reasons_of, summary_of, why_lines
from plugin.views.upcoming import upcoming_of


@on_objects("why", "Say why an object is not as its spec asks: what waits, what causes it, and what comes next.")
async def command(session: Session, subjects: Subjects, lease_name: str) -> None:
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
            answer = {"summary": summary_of(situation), "reasons": reasons}
            answers.append({"name": target.path, "namespace": target.key.namespace, **answer})
        else:
            print_reasons(why_lines(situation, reasons, all_namespaces=not session.scope))
    print_answers(answers, session.flags.output)
    notes_about_missing(reader.missing.values())


async def _leader(session: Session, reader: Reader, name: str) -> Leader | None:
    """Return the controller's lease, or None if the user may not read leases."""
    try:
        return leader_of(await leases_named(session, name), clock.now())
    except Forbidden as error:
        reader.missing[LEASES.name] = str(error)
        return None
