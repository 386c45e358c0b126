"""What the audit log of the API server must show after a run. The log is a witness that the controller does not write.

- Each delete names the UID of its object, and each patch has a precondition. So no write meets another object, and no
  write overwrites what the controller has not seen.
- A fault makes no VM more than the run without the fault, and deletes or restarts no VM more.
- A write that fails is tried again at most `FAILURES` times in ten seconds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from controller.kubevirt.annotations import PREFIX, REVISION_NAME
from sandbox.audit import AuditRecord
from tests.faults.resources import KIND_OF, VMIS, VMS

FAILURES: Final = 20
WINDOW_S: Final = 10.0


def by_namespace(records: Iterable[AuditRecord]) -> Mapping[str, Sequence[AuditRecord]]:
    """The controllers' requests in each namespace. Their user agent is `vmherd/<version> (<commit>)`."""
    found: dict[str, list[AuditRecord]] = defaultdict(list)
    for each in records:
        if each.user_agent.startswith("vmherd/") and "(" in each.user_agent:
            found[each.namespace].append(each)
    return found


def judge(records: Sequence[AuditRecord], reference: Sequence[AuditRecord], *, counted: bool) -> Iterator[str]:
    """Yield what is wrong with these requests. `reference` has the requests of the run without a fault. If `counted` is
    true, the numbers of created and deleted VMs must not be larger than there.
    """
    writes = [each for each in records if each.resource in KIND_OF and each.verb not in ("get", "list", "watch")]
    for each in writes:
        if wrong := _without_precondition(each):
            yield f"{_shown(each)} {wrong}"
    for what, number in (_effects(records) - _effects(reference)).items() if counted else ():
        yield f"{what}: {number} more than without the fault"
    yield from _hammered(records)


def _without_precondition(write: AuditRecord) -> str:
    """Say how a write could hit another object, or a version that the controller has not seen."""
    if write.verb not in ("delete", "patch") or not bytes(write.request_object):
        is_whole = write.verb == "update" and write.subresource in ("", "status")
        return "replaces the whole object" if is_whole else ""
    body: Any = msgspec.json.decode(write.request_object)
    if write.verb == "delete":
        return "" if (body.get("preconditions") or {}).get("uid") else "names no UID"
    if isinstance(body, list):
        is_tested = any(step["op"] == "test" and step["path"] == "/metadata/uid" for step in body)
        return "" if is_tested else "tests no UID"
    metadata = body.get("metadata") or {}
    if metadata.get("resourceVersion"):
        return ""
    keys = [*(metadata.get("annotations") or {}), *(metadata.get("labels") or {})]
    own = set(body) <= {"metadata"} and all(each.startswith(PREFIX) or each == REVISION_NAME for each in keys)
    return "" if metadata.get("uid") and own else "has no precondition"


def _effects(records: Iterable[AuditRecord]) -> Counter[str]:
    """How many VMs and VMIs were created, deleted and restarted."""
    return Counter(
        f"{each.verb} {each.resource}"
        for each in records
        if each.resource in (VMS, VMIS) and each.verb in ("create", "delete") and not each.subresource
        if each.code < 300 and "dryRun=" not in each.request_uri
    )


def _hammered(records: Iterable[AuditRecord]) -> Iterator[str]:
    failures: dict[str, list[float]] = defaultdict(list)
    for each in records:
        if each.code >= 400 and each.verb != "get" and each.name:
            failures[_shown(each)].append(each.request_received_timestamp.timestamp())
    for what, times in failures.items():
        times.sort()
        if any(last - first < WINDOW_S for first, last in zip(times, times[FAILURES:], strict=False)):
            yield f"{what} fails more than {FAILURES} times in {WINDOW_S:g} s"


def _shown(record: AuditRecord) -> str:
    target = "/".join(filter(None, (record.resource, record.name, record.subresource)))
    return f"{record.verb} {target} -> {record.code}"
