"""Properties 1 and 5: a crash or an outage in the middle ends where none would have."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.herd import Place, Refused, eventually, herd, stays
from tests.integration.vacant import SHORT_LEASE, created, deleted

pytestmark = pytest.mark.cluster

WANTED = 300
UNDER_WAY = 50
PATIENT_LEASE = ("--lease-duration", "90s", "--renew-deadline", "80s")


def test_a_controller_killed_in_the_middle_of_a_scale_up_creates_nothing_twice(vacant: Place, tmp_path: Path) -> None:
    with herd(vacant.plane.kubeconfig, tmp_path, *SHORT_LEASE) as first:
        vacant.make_set(WANTED)
        eventually(lambda: len(vacant.vmis()) >= 40, what="the scale-up is under way")
        first.kill()
    assert len(vacant.vmis()) < WANTED
    with herd(vacant.plane.kubeconfig, tmp_path, *SHORT_LEASE):
        alive = vacant.wait_for(WANTED)
        stays(lambda: vacant.alive().keys() == alive.keys(), what="the VMIs")
    assert_each_once(created(vacant), of=set(alive))
    assert not deleted(vacant)


def test_a_controller_killed_in_the_middle_of_a_scale_down_deletes_nothing_too_much(
    vacant: Place, tmp_path: Path
) -> None:
    with herd(vacant.plane.kubeconfig, tmp_path, *SHORT_LEASE) as first:
        vacant.make_set(WANTED)
        before = vacant.wait_for(WANTED)
        vacant.change_set({"spec": {"replicas": 20}})
        eventually(lambda: len(vacant.alive()) <= WANTED - 40, what="the scale-down is under way")
        first.kill()
    assert len(vacant.alive()) > 20
    with herd(vacant.plane.kubeconfig, tmp_path, *SHORT_LEASE):
        kept = vacant.wait_for(20)
        stays(lambda: vacant.vmis().keys() == kept.keys(), what="those that are wanted")
    assert_each_once(deleted(vacant), of=before.keys() - kept.keys())
    assert_each_once(created(vacant), of=set(before))


def test_a_controller_outlives_its_api_server_and_goes_on_where_it_was(vacant: Place, tmp_path: Path) -> None:
    with herd(vacant.plane.kubeconfig, tmp_path, *PATIENT_LEASE) as program:
        vacant.make_set(WANTED)
        eventually(lambda: len(vacant.vmis()) >= 40, what="the scale-up is under way")
        vacant.plane.stop_apiserver()
        try:
            time.sleep(5)
            assert program.health("healthz")[0] == 200
        finally:
            vacant.plane.start_apiserver()
        eventually(lambda: answers(vacant), what="the server serves VMIs again")
        alive = vacant.wait_for(WANTED, within_s=60)
        assert_each_once(created(vacant), of=set(alive))
        assert not deleted(vacant)
        whose = {line["resource"].partition(".")[0] for line in program.lines(msg="waiting")}
        assert whose == {"virtualmachineinstances", "virtualmachineinstancereplicasets"}
        assert all(line["why"] for line in program.lines(msg="waiting"))
        eventually(lambda: len(program.lines(msg="following again")) >= 2, what="both watches are told of")
        assert not program.lines(level="error")


def assert_each_once(written: Counter[str], *, of: set[str]) -> None:
    """Each of these names at most once, and none besides.

    Of the requests that a crash or an outage cuts off, the log may tell another end than the object shows: at most as
    many as are under way at once.
    """
    assert set(written.values()) == {1}
    assert written.keys() <= of
    assert len(of) - len(written) <= UNDER_WAY


def answers(place: Place) -> bool:
    """A server that is ready may still say for a moment that it reads its storage."""
    try:
        place.vmis()
    except Refused as refused:
        if refused.status == 429:
            return False
        raise
    return True
