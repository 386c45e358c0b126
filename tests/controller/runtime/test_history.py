"""The annotation `vmherd.dev/history`: what it keeps, and how often it is written (R12, P18)."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import HISTORY
from controller.kubevirt.replicaset_types import ReplicaSetStatus
from controller.replicas.history import (
    MOST_BYTES,
    MOST_FACTS,
    Fact,
    encode_history,
    fact,
    facts_of_status,
    joined,
    last_writer,
    read_history,
)
from controller.replicas.triggers import wakes_of_owner
from controller.runtime.actions import Notice
from controller.runtime.settle.expectations import Expectations
from controller.runtime.settle.history_writer import COLLECT_S, EVERY_S, LONGEST_S, HistoryWriter
from controller.runtime.triggers import wakes_of
from informers.meta import ObjectKey, ObjectMeta
from informers.store import Updated
from tests.builders import NOW, REPLICASETS, replicaset
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.caches import LaggingCache
from tests.fakes.requests import refusal
from tests.fakes.virtual_time import now
from tests.informers.subjects import config_map

pytestmark = pytest.mark.looptime

KEY = ObjectKey("default", "web")
FACTS = st.lists(
    st.builds(
        lambda age_s, reason, text: fact(NOW - timedelta(seconds=age_s), reason, text),
        st.integers(0, 10**6),
        st.sampled_from(["Scaled", "RolledOut", "FailedCreate", "HealingHeld"]),
        st.text(max_size=400),
    ),
    max_size=60,
).map(lambda facts: sorted(facts, key=lambda each: each.at))


def meta_with(text: str) -> ObjectMeta:
    return ObjectMeta(name="web", namespace="default", annotations={HISTORY: text})


@given(FACTS, st.integers(0, 60))
def test_the_list_stays_small_and_can_be_read_again(happened: list[Fact], number: int):
    facts = joined(joined((), happened[:number]), happened[number:])
    assert len(facts) <= MOST_FACTS
    text = encode_history(facts)
    assert len(text.encode()) <= MOST_BYTES
    read = read_history(meta_with(text))
    assert read == facts[len(facts) - len(read) :]
    assert joined(read, read) == read, "a write whose answer was lost adds nothing twice"


@pytest.mark.parametrize(
    "text", ["", "x", "{}", "[1]", '[{"at":"2026-01-01T00:00:00","reason":"a","text":"b"}]', "[" * 4000]
)
def test_what_a_user_writes_there_counts_as_nothing(text: str):
    assert read_history(meta_with(text)) == ()
    assert read_history(ObjectMeta()) == ()


def test_a_burst_is_one_fact_with_its_number():
    deleted = [fact(NOW + timedelta(seconds=each), "SuccessfulDelete", f"web-{each}") for each in range(30)]
    [one] = joined((), deleted)
    assert (one.times, one.text, one.at, one.until) == (30, "web-29", NOW, NOW + timedelta(seconds=29))
    later = fact(NOW + timedelta(hours=1), "SuccessfulDelete", "web-1")
    assert joined((one,), [later]) == (one, later)


def test_a_status_tells_the_begin_and_the_end_of_a_rollout():
    old = ReplicaSetStatus(current_revision="web-1", update_revision="web-1")
    moving = replace(old, update_revision="web-2")
    done = replace(moving, current_revision="web-2")
    assert [each.text for each in facts_of_status(old, moving, NOW)] == ["from web-1 to web-2"]
    assert [each.reason for each in facts_of_status(moving, done, NOW)] == ["RolledOut"]
    assert not [*facts_of_status(None, done, NOW), *facts_of_status(done, done, NOW)]


def test_the_last_writer_of_a_field_is_named():
    owns = {"f:spec": {"f:replicas": {}}}
    writes = [
        {"manager": "kubectl-create", "time": "2026-01-01T00:00:00Z", "fieldsV1": owns},
        {"manager": "kube-controller-manager", "fieldsV1": owns, "subresource": "scale"},
        {"manager": "vmherd", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:status": {}}},
        {"manager": "kubectl-edit", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {"f:paused": {}}}},
    ]
    answer = msgspec.json.encode({"metadata": {"managedFields": writes}})
    assert last_writer(answer, "replicas") == "kube-controller-manager"
    assert [last_writer(answer, "template"), last_writer(b"[]", "replicas"), last_writer(b"{}", "replicas")] == [""] * 3


def test_an_update_that_changes_only_the_version_wakes_nothing_and_is_not_looked_at():
    change = Updated(config_map("a", 5, color="red"), config_map("a", 6, color="red"), only_version=True)
    never = partial(pytest.fail, "the function was called")
    assert wakes_of(change, never, decides_by=never, counts_by=never) == []


def test_the_note_wakes_nothing():
    old = replicaset(annotations={HISTORY: "[]"})
    noted = replicaset(annotations={HISTORY: "[1]"})
    assert wakes_of_owner(Updated(old=old, new=noted)) == []
    assert wakes_of_owner(Updated(old=old, new=replicaset(annotations={HISTORY: "[]", "vmherd.dev/partition": "1"})))


class Setup:
    def __init__(self) -> None:
        self.server = FakeApiServer(has_status=(REPLICASETS,))
        self.server.put(
            REPLICASETS, {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": {"replicas": 3}}
        )
        self.cache = LaggingCache(self.server, REPLICASETS)
        self.cache.catch_up()
        self.restart()

    def restart(self) -> None:
        self.expectations = Expectations({REPLICASETS: self.cache.store}, now=now, gave_up=lambda: None)
        self.writer = HistoryWriter(self.server, REPLICASETS, self.expectations, lambda: NOW + timedelta(seconds=now()))

    @property
    def owner(self) -> Any:
        self.cache.catch_up()
        return self.cache.store.get(KEY)

    @property
    def meta(self) -> ObjectMeta:
        return self.owner.metadata

    @property
    def writes(self) -> int:
        return sum(request.verb == "patch" for request in self.server.requests)

    def tell(self, reason: str, *messages: str) -> None:
        self.writer.tell(self.meta, [Notice(reason=reason, message=each) for each in messages or ("x",)])

    async def pass_time(self, seconds: float) -> None:
        """Reconcile as often as the writer asks for it, and also each ten seconds."""
        end = now() + seconds
        while end - now() > 0.01:
            due_s = await self.writer.write(self.owner)
            await asyncio.sleep(min(10.0 if due_s is None else max(due_s, 0.1), end - now()))
        await self.writer.write(self.owner)

    @property
    def told(self) -> list[str]:
        return [each.reason for each in read_history(self.meta)]


@pytest.fixture
def setup() -> Setup:
    return Setup()


async def test_facts_are_collected_and_written_at_most_once_a_minute(setup):
    setup.tell("SuccessfulDelete", "web-1", "web-2")
    for reason in ("HealingHeld", "SuccessfulCreate"):
        setup.tell(reason)
    assert await setup.writer.write(setup.owner) == COLLECT_S
    await setup.pass_time(COLLECT_S)
    assert (setup.writes, setup.told) == (1, ["SuccessfulDelete", "HealingHeld"]), "no line about each created VM"
    assert [each.times for each in read_history(setup.meta)] == [2, 1]
    for number in range(5):
        setup.tell(f"Fact{number}")
        await setup.pass_time(10)
    assert setup.writes == 1
    await setup.pass_time(EVERY_S)
    assert (setup.writes, len(setup.told)) == (2, 7)
    assert not [request for request in setup.server.requests if request.verb == "get"]


async def test_the_next_status_waits_until_the_cache_shows_the_note(setup):
    setup.tell("HealingHeld")
    owner, meta = setup.owner, setup.meta
    await asyncio.sleep(COLLECT_S)
    await setup.writer.write(owner)
    assert not setup.expectations.settled(KEY, meta.uid)
    setup.cache.catch_up()
    assert setup.expectations.settled(KEY, meta.uid)


async def test_a_refused_note_raises_nothing_and_is_tried_less_and_less_often(setup):
    setup.server.fault_for = lambda request: refusal(403, "Forbidden", "a policy")
    setup.tell("HealingHeld")
    await setup.pass_time(24 * 3600)
    assert 20 <= setup.writes <= 32
    setup.server.fault_for = lambda request: None
    await setup.pass_time(LONGEST_S)
    assert setup.told == ["HealingHeld"]


async def test_a_note_that_another_program_removes_is_not_written_again(setup):
    setup.tell("HealingHeld")
    await setup.pass_time(10)
    setup.server.change(REPLICASETS, KEY, {"metadata": {"annotations": {HISTORY: None}}})
    await setup.pass_time(3600)
    assert (setup.writes, setup.told) == (1, [])
    setup.tell("RolledBack")
    await setup.pass_time(10)
    assert (setup.writes, setup.told) == (2, ["RolledBack"])


async def test_what_happens_again_and_again_costs_a_write_an_hour(setup):
    for _ in range(24 * 12):
        setup.tell("FailedCreate", "exceeded quota")
        await setup.pass_time(300)
    assert setup.writes <= 25
    [one] = read_history(setup.meta)
    assert one.times > 24 * 11


async def test_a_change_of_replicas_is_a_fact_with_its_author(setup):
    owns = {"manager": "kubectl-scale", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    answer = msgspec.json.encode({"metadata": {"managedFields": [owns]}})
    owner = setup.owner
    await setup.writer.write(owner)
    for replicas in (3, 5):
        spec = replace(owner.spec, replicas=replicas)
        setup.writer.tell_status(replace(owner, spec=spec), ReplicaSetStatus(), answer)
    await setup.pass_time(10)
    assert [(each.reason, each.text) for each in read_history(setup.meta)] == [
        ("Scaled", "from 3 to 5, by kubectl-scale")
    ]


async def test_a_new_process_does_not_repeat_a_lasting_cause(setup):
    lasting = [Notice(reason="HealingHeld", message="too many fail", once="held")]
    setup.writer.tell(setup.meta, lasting)
    await setup.pass_time(10)
    setup.restart()
    await setup.pass_time(3600)
    setup.writer.tell(setup.meta, lasting)
    await setup.pass_time(10)
    assert setup.writes == 1
