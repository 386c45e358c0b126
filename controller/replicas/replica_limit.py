"""The limit for the replicas of one set or pool.

Without the limit, a wrong number, for example 2147483647, would fill the API server's storage. The time of a
reconciliation grows with the number of replicas. Without the limit, one very large object would also delay all other
objects.
"""

from typing import Final

from controller.replicas.kstatus import Stall
from controller.runtime.actions import Notice, Plan
from informers.meta import ObjectMeta

REPLICAS_LIMITED: Final = "ReplicasLimited"


def limited(wanted: int, existing: int, most: int) -> int:
    """Return the number of replicas to create and keep. The argument `most` is the limit, and 0 means no limit.

    The limit stops only the creation of replicas. If more replicas exist than the limit allows, the existing replicas
    stay.
    """
    return min(wanted, max(most, existing)) if most else wanted


def plan_limit(owner: ObjectMeta, wanted: int, most: int) -> Plan:
    """If the number `wanted` exceeds the limit `most`, return a plan with a notice. Otherwise return an empty plan.

    The notice is sent once for each generation of the set or pool.
    """
    if not most or wanted <= most:
        return Plan()
    message = _message(wanted, most)
    notice = Notice(reason=REPLICAS_LIMITED, message=message, once=f"generation-{owner.generation}")
    return Plan(held=message, notices=(notice,))


def limit_stall(wanted: int, existing: int, most: int) -> Stall | None:
    """Return the stall of a set or pool that has as many replicas as the limit allows, and wants more. Otherwise,
    return None.
    """
    is_reached = 0 < most <= existing < wanted
    return Stall(REPLICAS_LIMITED, _message(wanted, most)) if is_reached else None


def _message(wanted: int, most: int) -> str:
    return f"spec.replicas is {wanted}: at most {most} are created (--max-replicas)"
