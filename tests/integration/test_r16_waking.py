"""R16 and property 4: what alters no decision wakes nobody, and at rest there is silence."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.herd import Herd, Place, eventually, herd, stays

pytestmark = pytest.mark.cluster

REST_S = 20.0

IRRELEVANT: dict[str, dict[str, Any]] = {
    "an annotation": {"metadata": {"annotations": {"note": "hello"}}},
    "a field of the status": {"status": {"guestOSInfo": {"name": "Fedora"}}},
    "a finalizer of somebody": {"metadata": {"finalizers": ["test.vmherd.dev/hold"]}},
}


def test_r16_a_change_that_alters_no_decision_wakes_nobody(place: Place, running: Herd) -> None:
    place.make_set(2)
    name = next(iter(place.wait_for(2)))
    place.play_all()
    eventually(lambda: place.status().get("readyReplicas") == 2)
    quiet_down(place, running)
    before = running.passes(place.namespace)
    for what, change in IRRELEVANT.items():
        place.change_vmi(name, change)
        stays(lambda: running.passes(place.namespace) == before, for_s=0.7, what=f"asleep after {what}")
    place.change_vmi(name, {"metadata": {"finalizers": None}})
    place.delete_vmi(name)
    eventually(lambda: running.passes(place.namespace) > before, what="a deletion wakes")


def test_r16_an_orphan_that_matches_nobody_wakes_nobody(place: Place, running: Herd) -> None:
    place.make_set(1)
    place.wait_for(1)
    quiet_down(place, running)
    before = running.passes(place.namespace)
    place.make_vmi("stranger", labels={"app": "other"})
    place.change_vmi("stranger", {"metadata": {"labels": {"more": "yes"}}})
    stays(lambda: running.passes(place.namespace) == before, what="asleep")
    place.change_vmi("stranger", {"metadata": {"labels": {"app": "herd"}}})
    eventually(lambda: running.passes(place.namespace) > before, what="a label that matches wakes")


def test_r16_at_rest_there_are_no_requests_but_watches_and_the_lease(vacant: Place, tmp_path: Path) -> None:
    with herd(vacant.plane, tmp_path) as program:
        vacant.make_set(20)
        vacant.wait_for(20)
        vacant.play_all()
        eventually(lambda: vacant.status().get("readyReplicas") == 20)
        quiet_down(vacant, program)
        time.sleep(1)
        passes, at_rest = program.passes(vacant.namespace), vacant.plane.audit_position()
        time.sleep(REST_S)
        asked = [
            (record.verb, record.resource)
            for record in vacant.plane.audit_records(at_rest)
            if record.user_agent.startswith("vmherd/")
        ]
        assert {row for row in asked if row[0] != "watch"} == {("patch", "leases")}
        assert program.passes(vacant.namespace) == passes


def quiet_down(place: Place, program: Herd) -> None:
    """Wait until there was no pass for a while."""
    seen, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        now = program.passes(place.namespace)
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > 0.6

    eventually(is_quiet, what="quiet")
