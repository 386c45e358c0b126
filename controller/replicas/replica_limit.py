"""The limit for the replicas of one set or pool.

Without the limit, a wrong number, for example 2147483647, would fill the API server's storage. The time of a
reconciliation grows with the number of replicas. Without the limit, one very large object would also delay all other
objects.
"""

from typing import Final

from msgspec.structs import replace

from controller.runtime.actions import Notice, Plan, waiting
from controller.runtime.waits import Why
from informers.meta import ObjectMeta

REPLICAS_LIMITED: Final = "ReplicasLimited"


def limited(wanted: int, existing: int, most: int) -> int:
    """Return the number of replicas to create and keep. The argument `most` is the limit, and 0 means no limit.

    The limit stops only the creation of replicas. If more replicas exist than the limit allows, the existing replicas
    stay.
    """
    return min(wanted, max(most, existing)) if most else wanted


def plan_limit(owner: ObjectMeta, wanted: int, existing: int, most: int) -> Plan:
    """If the number `wanted` exceeds the limit `most`, return a plan with a notice. Otherwise return an empty plan.

    The notice is sent once for each generation of the set or pool. The set or pool is stalled when as many replicas
    exist as the limit allows.
    """
    if not most or wanted <= most:
        return Plan()
    message = f"spec.replicas is {wanted}: at most {most} are created (--max-replicas)"
    notice = Notice(reason=REPLICAS_LIMITED, message=message, once=f"generation-{owner.generation}")
    stall = REPLICAS_LIMITED if most <= existing < wanted else ""
    return replace(waiting(message, Why.USER, stall=stall), notices=(notice,))
