"""The situation of an object of any kind."""

from typing import Any

from controller.kinds import Kind
from controller.pool.members.snapshot import Snapshot as PoolSnapshot
from controller.replicas.kstatus import text_of_defect
from controller.replicaset.snapshot import Snapshot as SetSnapshot
from plugin.views.pools import situation_of_pool
from plugin.views.sets import situation_of_set
from plugin.views.situation import Situation, situation_from_status


def situation_of(kind: Kind[Any], group: str, snapshot: Any) -> Situation:
    """If the snapshot is of another kind than pool or set, or if the rules fail, only its status is used."""
    told: dict[str, Any] = {}
    try:
        match snapshot:
            case PoolSnapshot():
                return situation_of_pool(snapshot)
            case SetSnapshot():
                return situation_of_set(snapshot)
    except Exception as error:  # the controller fails in the same way
        told = {"found": text_of_defect(error)}
    return situation_from_status(kind, group, snapshot.owner, snapshot.owner.status, **told)
