"""The back-off of replacements: VMIs with early failures are replaced with a growing delay (R4a).

An *early failure* is a VMI of the present template that failed within ten minutes after its start, or shut down (phase
Succeeded) within one. Its first replacement is created at once, the second after 10 seconds, and then the delay doubles
up to 5 minutes, as for containers.

The state is in the objects. A failed VMI stays until its replacement is created; if a user deletes it, the delay ends.
A replacement has an annotation with the number of failures before it. The number is 0 again after a VMI has run for ten
minutes, and for a new template. If a policy takes the annotation off, this process still knows it (see `rosters.py`).

If no VMI of the template is ready, the template is probably the cause. After two failures in a row, such a set starts
only one VMI at a time, and keeps only a few failed VMIs.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition, with_timezone
from controller.kubevirt.annotations import EARLY_FAILURES
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.kubevirt.vmis import entered, is_final, is_ready, phase_of, ready_since, unready_since, was_ready
from controller.replicas.conditions import REPLICA_BACK_OFF
from controller.replicaset.template import Template, is_updated
from controller.replicaset.traits import VMIs, replaces_failure
from controller.runtime.waits import FIRST_DELAY, LONGEST_DELAY, growing_delay
from informers.meta import annotations_of

PROVEN_AFTER: Final = timedelta(minutes=10)
DONE_AFTER: Final = timedelta(minutes=1)
FORGOTTEN_AFTER: Final = timedelta(minutes=30)
"""If a replacement is older than this time, its failure does not count as an early failure."""

MAX_EVIDENCE: Final = 10
NODE_UNRESPONSIVE: Final = "NodeUnresponsive"
"""The `status.reason` of a VMI that KubeVirt marked as failed because its node was lost."""

_VALID_FAILURES: Final = range(1, 10**6)
NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Trial(Struct, frozen=True):
    """The history of a VMI that replaces an early failure. `failures` is the number of failures in a row before it.
    `since` and `at` are the creation times of the first failure and of this VMI, on the controller's clock.
    """

    failures: int = 0
    since: datetime | None = None
    at: datetime | None = None


FRESH: Final = Trial()


class EarlyFailure(Struct, frozen=True):
    """A failed VMI without a replacement yet. `failures` includes it. `since` is when the first of them was created, or
    ended if it was ready until then. `due` is the earliest replacement.
    """

    vmi: VirtualMachineInstance
    failures: int
    since: datetime
    due: datetime


class BackOff(Struct, frozen=True):
    """The early failures, those with the most failures in a row first, and `since` when the first VMI existed. With
    `one_at_a_time`, no VMI of the template is ready, and the first replacement has failed too. `trying_until` is the
    end of the wait for a starting replacement.
    """

    failures: tuple[EarlyFailure, ...] = ()
    since: datetime | None = None
    one_at_a_time: bool = False
    trying_until: datetime | None = None


class Creates(Struct, frozen=True):
    """The VMIs to create now, for `replaced` ones and `fresh` ones. Others are `waiting`, at least until `next_at`."""

    replaced: tuple[EarlyFailure, ...] = ()
    fresh: int = 0
    waiting: int = 0
    next_at: datetime | None = None

    @property
    def number(self) -> int:
        return len(self.replaced) + self.fresh


def find_back_off(now: datetime, template: Template, active: VMIs, spent: VMIs) -> BackOff:
    """`spent` are the VMIs that are to be replaced (R3)."""
    spent = spent.where(lambda vmi: is_updated(vmi, template))
    failures = [_early_failure(vmi, now) for vmi in spent if _failed_early(vmi, now)]
    failures.sort(key=lambda each: (-each.failures, -each.due.timestamp(), each.vmi.metadata.name))
    current = active.where(lambda vmi: is_updated(vmi, template))
    starting = [vmi for vmi in _replacements(current).traits() if trial_of(vmi).failures]
    rows = [*(each.since for each in failures), *(failing_since(vmi, now) for vmi in starting)]
    back_off = BackOff(tuple(failures), min(rows, default=None))
    early = {failure.vmi.metadata.uid for failure in failures}
    is_done = any(phase_of(vmi) == "Succeeded" and vmi.metadata.uid not in early for vmi in spent)
    if is_done or current.some(is_ready):
        return back_off
    trials = [trial_of(vmi) for vmi in starting]
    if max((*(trial.failures for trial in trials), *(each.failures for each in failures)), default=0) < 2:
        return back_off
    # The set waits for a starting replacement only for a limited time.
    ends = [trial.at + LONGEST_DELAY for trial in trials if trial.at is not None]
    trying_until = max((end for end in ends if now < end <= now + LONGEST_DELAY), default=None)
    return replace(back_off, one_at_a_time=True, trying_until=trying_until)


def choose_creates(back_off: BackOff, missing: int, *, burst: int, now: datetime) -> Creates:
    if missing <= 0:
        return Creates()
    if back_off.one_at_a_time:
        worst = back_off.failures[:1]
        times = (back_off.trying_until, *(each.due for each in worst))
        earliest = max((each for each in times if each is not None), default=now)
        if earliest > now:
            return Creates(waiting=missing, next_at=earliest)
        return Creates(worst, fresh=1 - len(worst), waiting=missing - 1)
    waiting = [each for each in back_off.failures if each.due > now][:missing]
    room = min(missing - len(waiting), burst)
    replaced = tuple(each for each in back_off.failures if each.due <= now)[:room]
    next_at = min((each.due for each in waiting), default=None)
    return Creates(replaced, room - len(replaced), len(waiting), next_at)


def kept_as_evidence(back_off: BackOff, creates: Creates, missing: int) -> frozenset[str]:
    """Return the UIDs of the failed VMIs that must stay. This reconciliation does not replace these VMIs."""
    places = missing - creates.number
    if back_off.one_at_a_time:
        places = min(places, MAX_EVIDENCE)
    replaced = {each.vmi.metadata.uid for each in creates.replaced}
    left = [each.vmi.metadata.uid for each in back_off.failures if each.vmi.metadata.uid not in replaced]
    return frozenset(left[: max(places, 0)])


def delay_after(failures: int) -> timedelta:
    """Return the delay of the next replacement after so many failures in a row. The first failure causes none."""
    return growing_delay(failures - 1, FIRST_DELAY, LONGEST_DELAY) if failures > 1 else timedelta()


def trial_of(vmi: VirtualMachineInstance) -> Trial:
    """Return the history of the VMI. An annotation that cannot be parsed counts as no history."""
    text = annotations_of(vmi.metadata).get(EARLY_FAILURES, "")
    if not text:
        return FRESH
    try:
        trial = msgspec.json.decode(text, type=Trial)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return FRESH
    if trial.failures not in _VALID_FAILURES:
        return FRESH
    return Trial(trial.failures, with_timezone(trial.since), with_timezone(trial.at))


def failing_since(vmi: VirtualMachineInstance, now: datetime) -> datetime:
    """Return the creation time of the first failed VMI of the series, or of this VMI."""
    return min(trial_of(vmi).since or _created(vmi), _created(vmi), now)


def condition_of(back_off: BackOff, creates: Creates, active: VMIs, template: Template) -> Condition | None:
    """Return the condition `ReplicaBackOff` while a replacement waits, or starts after two or more failures."""
    starting = [
        (-trial.failures, vmi.metadata.name)
        for vmi in _replacements(active.where(lambda vmi: is_updated(vmi, template))).firsts()
        if (trial := trial_of(vmi)).failures >= 2
    ]
    if starting:
        failures, name = min(starting)
        message = f"{name} is starting; failures in a row before it: {-failures}"
    elif creates.waiting and back_off.failures:
        message = message_of(back_off.failures[0])
    else:
        return None
    return Condition(type=REPLICA_BACK_OFF, status="True", reason="CrashLoopBackOff", message=message)


def message_of(failure: EarlyFailure) -> str:
    verb = "ended" if phase_of(failure.vmi) == "Succeeded" else "failed"
    return (
        f"virtual machine {failure.vmi.metadata.name} {verb} soon after it started; failures in a row: "
        f"{failure.failures}; the next virtual machine is created at {failure.due.astimezone(UTC):%H:%M:%S} UTC"
    )


def is_proven(vmi: VirtualMachineInstance, now: datetime) -> bool:
    """Return True if the VMI is ready. A VMI that replaces an early failure must be ready for `PROVEN_AFTER`."""
    since = ready_since(vmi)
    if since is None or not trial_of(vmi).failures:
        return is_ready(vmi)
    return now - since >= PROVEN_AFTER


def next_proof(vmis: Iterable[VirtualMachineInstance], now: datetime) -> datetime | None:
    """Return the time at which the first of these VMIs has been ready for `PROVEN_AFTER`, or None if none is ready."""
    times = [since for since in map(ready_since, vmis) if since is not None]
    return min(*times, now) + PROVEN_AFTER if times else None


def annotation_of(failures: int, since: datetime, now: datetime) -> str:
    """`failures` is the number of failures in a row before the replacement."""
    trial = Trial(failures, since.astimezone(UTC).replace(microsecond=0), now.astimezone(UTC).replace(microsecond=0))
    return msgspec.json.encode(trial).decode()


def _replacements(active: VMIs) -> VMIs:
    return active.where(lambda vmi: replaces_failure(vmi) and not is_ready(vmi))


def _early_failure(vmi: VirtualMachineInstance, now: datetime) -> EarlyFailure:
    trial = trial_of(vmi)
    failures = trial.failures + 1
    # `at` comes from our clock, the other times from the clocks of KubeVirt and of the API server. Times in the far
    # future are ignored, so that a wrong clock cannot extend a delay without limit.
    times = (_ended(vmi) or _created(vmi), trial.at or NEVER)
    ended = max((each for each in times if each <= now + LONGEST_DELAY), default=now)
    # A VMI that was ready until its end does not tell that its template has failed since its creation.
    since = min(ended, now) if failures == 1 and was_ready(vmi) else failing_since(vmi, now)
    return EarlyFailure(vmi, failures, since, min(ended, now) + delay_after(failures))


def _failed_early(vmi: VirtualMachineInstance, now: datetime) -> bool:
    """Return True for an early failure, also with a terminating launcher Pod, but not after the loss of the node."""
    at = trial_of(vmi).at
    if at is not None and now - at > FORGOTTEN_AFTER:
        return False
    phase = phase_of(vmi)
    if phase == "Unknown":
        return False
    status = vmi.status
    if status is None or status.reason == NODE_UNRESPONSIVE:
        return False
    started = entered(vmi, "Running")
    if started is None and status.phase_transition_timestamps is not None:
        return True
    expected = DONE_AFTER if phase == "Succeeded" else PROVEN_AFTER
    return (_ended(vmi) or now) - (started or _created(vmi)) < expected


def _ended(vmi: VirtualMachineInstance) -> datetime | None:
    """A VMI whose Pod terminates is still in the phase in which it ran."""
    return (entered(vmi, phase_of(vmi)) if is_final(vmi) else None) or unready_since(vmi)


def _created(vmi: VirtualMachineInstance) -> datetime:
    return with_timezone(vmi.metadata.creation_timestamp) or NEVER
