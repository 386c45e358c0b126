"""Two controllers at work: one leads and writes, the other stands by and takes over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox.audit import AuditRecord
from tests.integration.herd import Herd, Place, eventually, herd, stays
from tests.integration.vacant import LEASE_S, SHORT_LEASE, created

pytestmark = pytest.mark.cluster


@pytest.fixture
def old(vacant: Place, tmp_path: Path) -> Iterator[Herd]:
    """It leads."""
    with herd(vacant.plane, tmp_path, *SHORT_LEASE) as program:
        yield program


@pytest.fixture
def new(old: Herd, vacant: Place, tmp_path: Path) -> Iterator[Herd]:
    """It stands by, with warm caches."""
    with ExitStack() as stack:
        program = stack.enter_context(herd(vacant.plane, tmp_path, *SHORT_LEASE, wait=False))
        eventually(lambda: program.lines(msg="caches synced"), what="the standby has its caches")
        assert not program.working
        assert old.working
        yield program


def writers(place: Place) -> set[str]:
    """By whose tokens anything was written in this namespace, Events included."""
    return {record.credential for record in writes(place)}


def writes(place: Place) -> list[AuditRecord]:
    return [
        record
        for record in place.plane.audit_records(place.since)
        if record.user_agent.startswith("vmherd/")
        and record.namespace == place.namespace
        and record.verb not in ("get", "list", "watch")
    ]


def test_only_the_leader_writes_and_both_are_ready(vacant: Place, old: Herd, new: Herd) -> None:
    vacant.make_set(20)
    vacant.wait_for(20)
    vacant.change_set({"spec": {"replicas": 5}})
    vacant.wait_for(5)
    assert writers(vacant) == {old.credential}
    assert old.health("readyz")[0] == new.health("readyz")[0] == 200
    assert 'leader_election_master_status{name="vmherd"} 1.0' in old.metrics()
    assert 'leader_election_master_status{name="vmherd"} 0.0' in new.metrics()


def test_sigterm_in_the_middle_hands_over_within_two_seconds(vacant: Place, old: Herd, new: Herd) -> None:
    vacant.make_set(300)
    eventually(lambda: len(vacant.vmis()) >= 40, what="the scale-up is under way")
    assert old.stop() == 0
    ended = time.monotonic()
    eventually(lambda: new.working, within_s=5, what="the standby works")
    assert time.monotonic() - ended < 2
    alive = vacant.wait_for(300)
    assert created(vacant) == dict.fromkeys(alive, 1)


def test_a_dead_leader_is_replaced_when_its_lease_has_run_out(vacant: Place, old: Herd, new: Herd) -> None:
    vacant.make_set(3)
    vacant.wait_for(3)
    old.kill()
    died = time.monotonic()
    vacant.change_set({"spec": {"replicas": 4}})
    eventually(lambda: new.working, within_s=2 * LEASE_S, what="the standby works")
    assert time.monotonic() - died < LEASE_S + 1
    vacant.wait_for(4)
    assert writers(vacant) == {old.credential, new.credential}


def test_a_leader_stopped_past_its_lease_writes_nothing_when_it_goes_on(vacant: Place, old: Herd, new: Herd) -> None:
    vacant.make_set(300)
    eventually(lambda: len(vacant.vmis()) >= 40, what="the scale-up is under way")
    old.process.send_signal(signal.SIGSTOP)
    alive = vacant.wait_for(300)
    continued = datetime.now(UTC)
    old.process.send_signal(signal.SIGCONT)
    assert old.process.wait(10) != 0
    stays(lambda: vacant.alive().keys() == alive.keys(), what="the VMIs")
    assert new.credential in writers(vacant)
    first_of_new = min(r.request_received_timestamp for r in writes(vacant) if r.credential == new.credential)
    late = [r for r in writes(vacant) if r.credential == old.credential and r.request_received_timestamp > first_of_new]
    assert first_of_new < continued
    # Nothing can be between asking whether one leads and the bytes of one request, but a process can stop there, too.
    assert len(late) <= 1
    assert created(vacant) == dict.fromkeys(alive, 1)
    assert "the lease vmherd-system/vmherd" in old.log.read_text().splitlines()[-1]
