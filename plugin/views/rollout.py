"""The progress of a rollout, in the words of kubectl, and whether `rollout status` waits, succeeds or fails."""

from enum import StrEnum

from msgspec import Struct, structs

from plugin.views.situation import Situation


class State(StrEnum):
    WAITING = "Waiting"
    DONE = "Done"
    FAILED = "Failed"


class Progress(Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of one rollout. `message` is the line for users. `problem` is what keeps the rollout waiting."""

    name: str
    namespace: str
    state: State
    message: str
    revision: str
    wanted: int
    updated: int
    ready: int
    unavailable: int
    problem: str = ""


def progress_of(situation: Situation, *, pinned: int = 0) -> Progress:
    """Return the progress of the rollout. `pinned` is the revision that a user waits for, or 0."""
    state, message = _judge(situation, pinned)
    problem = situation.problem if state is State.WAITING else ""
    return Progress(
        name=situation.identity.path,
        namespace=situation.identity.namespace,
        state=state,
        message=f"{message} ({problem})" if problem else message,
        revision=situation.revisions,
        wanted=situation.wanted,
        updated=situation.updated,
        ready=situation.ready,
        unavailable=situation.wanted - situation.available,
        problem=problem,
    )


def first_wait(situation: Situation) -> str:
    """Return what a rollout without a problem waits for: a controller, or ""."""
    if situation.is_observed:
        return ""
    return f"no controller has seen it; see kubectl vmherd why {situation.identity.short_path}"


def _judge(situation: Situation, pinned: int) -> tuple[State, str]:
    this, member = situation.identity, situation.identity.member
    waiting = f"Waiting for {this} rollout to finish:"
    if situation.is_deleting:
        return State.FAILED, f"{this} is being deleted"
    if situation.invalid:
        return State.FAILED, f"{this} is invalid: {situation.invalid}"
    if pinned and situation.revision != str(pinned):
        wrong = f"desired revision ({pinned}) is different from the running revision ({situation.revision})"
        return State.FAILED, wrong
    if not situation.is_observed:
        return State.WAITING, f"Waiting for {this} spec update to be observed..."
    if situation.stalled:
        return State.FAILED, f"{this} {situation.stalled}"
    if situation.updated < situation.target:
        if situation.by_hand:
            return State.FAILED, f"{this} does not finish its rollout: {situation.by_hand}"
        done = f"{situation.updated} out of {situation.target} new {member}s have been updated"
        step = f"; {situation.step}" if situation.step else ""
        return State.WAITING, f"{waiting} {done}{step}..."
    surplus = situation.total - situation.bridged - situation.wanted
    if surplus > 0:
        return State.WAITING, f"{waiting} {surplus} old {member}s are pending termination..."
    if situation.total < situation.wanted or situation.available < situation.wanted:
        done = f"{situation.available} of {situation.wanted} updated {member}s are available"
        return State.WAITING, f"{waiting} {done}..."
    if situation.target < situation.wanted:
        return State.DONE, f"partitioned roll out complete: {situation.target} new {member}s have been updated..."
    stops = f", but {situation.stops}" if situation.stops else ""
    return State.DONE, f"{this} successfully rolled out{stops}"


def behind_kubevirt(situation: Situation, why: str) -> Situation:
    """Return the situation of a set with outdated VMIs if KubeVirt's own controller works on the set.

    `why` says so. KubeVirt's controller labels no VMI with its template. Without any such label, the templates of the
    VMIs are not known.
    """
    is_known = any(member.revision for member in situation.members)
    unknown = situation.by_hand if not is_known else ""
    return structs.replace(situation, by_hand="; ".join(filter(None, (unknown, why))))
