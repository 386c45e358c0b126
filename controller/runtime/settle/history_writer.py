"""Writes the annotation `vmherd.dev/history` of the sets or pools of one kind.

It is written in the reconciliation, so no status write comes between, and at most once in `EVERY_S` for each object. A
refused write stops nothing: the facts wait, longer and longer. No fact is written again if another program removes the
annotation. The facts that wait are in memory only, so a restart of the process loses them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import structlog
from msgspec import Struct

from controller.kubevirt.annotations import HISTORY
from controller.replicas.history import (
    ABOUT_EACH_VM,
    LONGEST_TEXT,
    Fact,
    encode_history,
    fact,
    facts_of_status,
    joined,
    last_writer,
    read_history,
)
from controller.replicas.notes import note_patch
from controller.runtime.actions import AnyResource, Done, Notice
from controller.runtime.settle.expectations import Expectations
from informers.errors import ApiError
from informers.meta import ObjectKey, ObjectMeta
from informers.objects import ObjectClient, PatchType, read_version

log = structlog.get_logger()

COLLECT_S: Final = 5.0
"""The time between a fact and its write, so the facts of one change are written together."""

EVERY_S: Final = 60.0
LONGEST_S: Final = 3600.0
"""The least time between two writes. A refusal doubles it, up to the longest. A repeated fact waits for the longest."""


class _Waiting(Struct):
    """The facts of one object that are not written yet, the last known `spec.replicas`, and the next time to write."""

    uid: str
    facts: tuple[Fact, ...] = ()
    wanted: int | None = None
    due: float = 0.0
    wait_s: float = EVERY_S


class HistoryWriter:
    def __init__(
        self, client: ObjectClient, resource: AnyResource, expectations: Expectations, now: Callable[[], datetime]
    ) -> None:
        """`expectations` are those of the status: its next write waits until the cache shows the annotation."""
        self._client = client
        self._resource = resource
        self._expectations = expectations
        self._now = now
        self._waiting: dict[ObjectKey, _Waiting] = {}

    def tell(self, owner: ObjectMeta, notices: Iterable[Notice]) -> None:
        """Note what Events tell about the set or pool. A new process repeats the Events about a lasting cause."""
        at, told = self._now(), [each for each in notices if each.reason not in ABOUT_EACH_VM]
        if any(each.once for each in told):
            known = {(each.reason, each.text) for each in read_history(owner)}
            told = [each for each in told if not each.once or (each.reason, each.message[:LONGEST_TEXT]) not in known]
        texts, times = {each.reason: each.message for each in told}, Counter(each.reason for each in told)
        self._add(owner, [fact(at, reason, text, times[reason]) for reason, text in texts.items()])

    def tell_status(self, owner: Any, status: Any, answer: bytes) -> None:
        """Note what a new status tells. `answer` is the object after its write, which knows who wrote its spec."""
        at, waiting = self._now(), self._of(owner.metadata)
        before, wanted = waiting.wanted, replicas_of(owner)
        waiting.wanted = wanted
        if before not in (None, wanted):
            text = _signed(f"from {before} to {wanted}", last_writer(answer, "replicas"))
            self._add(owner.metadata, [fact(at, "Scaled", text)])
        for each in facts_of_status(owner.status, status, at):
            author = (
                last_writer(answer, "template", "virtualMachineTemplate") if each.reason == "RolloutStarted" else ""
            )
            self._add(owner.metadata, [fact(at, each.reason, _signed(each.text, author))])

    async def write(self, of: Any) -> float | None:
        """Write the facts of a set or pool if it is time. Return in how many seconds the next write is due, or None."""
        owner: ObjectMeta = of.metadata
        waiting, key, now = self._of(owner), owner.key, asyncio.get_running_loop().time()
        if waiting.wanted is None:
            waiting.wanted = replicas_of(of)
        if not waiting.facts or owner.deletion_timestamp is not None:
            return None
        if waiting.due > now:
            return waiting.due - now
        before = read_history(owner)
        facts = joined(before, waiting.facts)
        is_new = [each.at for each in facts] != [each.at for each in before]
        if not is_new and now < waiting.due + LONGEST_S:
            return None
        patch = note_patch(self._resource, owner, {HISTORY: encode_history(facts)}, "history")
        try:
            answer = await self._client.patch(self._resource, key, patch.body, content_type=PatchType.MERGE.value)
            self._expectations.record(key, owner.uid, [Done(patch, read_version(answer))])
        except ApiError as error:
            waiting.wait_s = min(2 * waiting.wait_s, LONGEST_S)
            log.debug("history not written", namespace=key.namespace, name=key.name, error=str(error))
        else:
            waiting.facts, waiting.wait_s = (), EVERY_S
        waiting.due = now + waiting.wait_s
        return waiting.wait_s if waiting.facts else None

    def forget(self, key: ObjectKey) -> None:
        self._waiting.pop(key, None)

    def _of(self, owner: ObjectMeta) -> _Waiting:
        found = self._waiting.get(owner.key)
        if found is None or found.uid != owner.uid:
            found = self._waiting[owner.key] = _Waiting(owner.uid)
        return found

    def _add(self, owner: ObjectMeta, facts: list[Fact]) -> None:
        waiting = self._of(owner)
        if facts and not waiting.facts:
            waiting.due = max(waiting.due, asyncio.get_running_loop().time() + COLLECT_S)
        waiting.facts = joined(waiting.facts, facts)


def replicas_of(owner: Any) -> int:
    return 1 if owner.spec.replicas is None else int(owner.spec.replicas)


def _signed(text: str, author: str) -> str:
    return f"{text}, by {author}" if author else text
