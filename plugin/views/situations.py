"""The situation of an object of any kind."""

from typing import Any

from controller.kinds import POOLS, Kind
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.replicas.catalogue import Place
from controller.replicas.kstatus import MESSAGES, text_of_defect, texts_of, word_of
from controller.replicas.wrong_annotations import with_hints, wrong_on
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from plugin.views.pools import situation_of_pool
from plugin.views.sets import situation_of_set
from plugin.views.situation import Member, Situation, failures_of, situation_of_owner, stall_of
from plugin.views.tables import printable


def situation_of(kind: Kind[Any], group: str, snapshot: Any) -> Situation:
    """If the snapshot is of another kind than pool or set, or if the rules fail, only its status is used."""
    problem = ""
    try:
        match snapshot:
            case PoolSnapshot():
                return situation_of_pool(snapshot)
            case SetSnapshot():
                return situation_of_set(snapshot)
    except Exception as error:  # the controller fails in the same way
        problem = text_of_defect(error)
    return situation_from_status(kind, group, snapshot.owner, problem=problem)


def situation_from_status(
    kind: Kind[Any], group: str, owner: Any, members: tuple[Member, ...] = (), *, problem: str = ""
) -> Situation:
    """Return what the status of the object alone shows, for users who may not read all its objects.

    `members` are the VMs that the user may read. `problem` is a problem that is more urgent than that in the status.

    KubeVirt's own controller writes no number of updated VMs. If the status lacks this number, all VMs count as
    updated.
    """
    status = owner.status
    wanted = 1 if owner.spec.replicas is None else owner.spec.replicas
    total, ready, updated = (
        (getattr(status, name) if status is not None else None)
        for name in ("replicas", "ready_replicas", "updated_replicas")
    )
    conditions = status.conditions if status is not None else None
    place = Place.POOL if kind is POOLS else Place.SET
    return situation_of_owner(
        kind,
        group,
        owner,
        wanted=wanted,
        total=total or 0,
        ready=ready or 0,
        updated=(total or 0) if updated is None else updated,
        target=wanted,
        unavailable=max(wanted - (ready or 0), 0),
        revision=_revision(owner, "update_revision"),
        old_revision=_revision(owner, "current_revision"),
        status=_word(status, wanted, total or 0, ready or 0, paused=bool(owner.spec.paused)),
        members=members,
        failures=failures_of(conditions),
        found=printable(problem) or _problem(status),
        stalled=stall_of(conditions),
        wrong=tuple(each.text for each in with_hints(wrong_on(owner.metadata, place))),
    )


def _problem(status: Any) -> str:
    """Return the first problem. KubeVirt's CRDs have no field for it, so the conditions are read too."""
    texts = texts_of(status.conditions if status is not None else None)
    said = [getattr(status, "problem", None), *(text for text in texts if text not in MESSAGES.values())]
    return printable(next(filter(None, said), ""))


def _revision(owner: Any, field: str) -> str:
    """Return the number in the name of a revision, `<pool>-<number>`. Return "" if the status names no revision."""
    name: str = getattr(owner.status, field, None) or ""
    return name.removeprefix(f"{owner.metadata.name}-")


def _word(status: Any, wanted: int, total: int, ready: int, *, paused: bool) -> str:
    """Return the word of the status. KubeVirt's CRDs have no field for the word, so the conditions are read too."""
    conditions = status.conditions if status is not None else None
    said = word_of(getattr(status, "printable_status", None), conditions)
    if said:
        return said
    if stall_of(conditions):
        return "Degraded"
    if paused:
        return "Paused"
    if status is None or total != wanted:
        return "Scaling"
    return "Running" if ready >= wanted else "Degraded"
