"""Asks the server whether it would accept the successor of an object, before the object is deleted (P20).

Admission policies, webhooks and quotas judge a create with `dryRun=All` like a real one. The name is still in use, and
names are compared after admission, so AlreadyExists is expected. Otherwise the answer shows what policies change.
"""

import re
from typing import Final

from controller.runtime.actions import Delete
from controller.runtime.execute.patches import error_of_labels
from informers.errors import AlreadyExists, ApiError, Forbidden
from informers.objects import ObjectClient

_FULL: Final = "exceeded quota: "
_QUOTA: Final = re.compile(rf"{_FULL}\S++ requested: (\S++) used: (\S++) limited: (\S++)")


async def successor_error(client: ObjectClient, action: Delete) -> ApiError | None:
    """Return the error with which the server would refuse the successor, or that of the question, or None."""
    try:
        answer = await client.create(action.resource, action.key.namespace, action.successor, dry_run=True)
    except AlreadyExists:
        return None
    except ApiError as error:
        if isinstance(error, Forbidden) and is_freed_by_delete(str(error)):
            return None
        return error
    return error_of_labels(action, answer)


def is_full_quota(message: str) -> bool:
    return _FULL in message


def is_freed_by_delete(message: str) -> bool:
    """Return True if only a full quota, which counts both objects in the dry run, refuses the successor."""
    match = _QUOTA.search(message)
    if match is None:
        return False
    requested, used, limited = map(_amounts, match.groups())
    return all(0 <= _number(used.get(name)) <= _number(limited.get(name)) for name in requested)


def _amounts(text: str) -> dict[str, str]:
    """Return the amounts in a list such as `count/pods=1,secrets=2`, by name."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name: amount for name, _, amount in pairs}


def _number(amount: str | None) -> int:
    """Return the value of a count, or -1 for a quantity with a unit or a missing amount."""
    return int(amount) if amount is not None and amount.isascii() and amount.isdigit() else -1
