"""Takeover mode: if the VMs of a pool do not match its template, the first update waits for the user's consent."""

import json

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import TAKEOVER
from controller.kubevirt.resources import VMIS
from controller.pool.members.snapshot import Limits
from controller.pool.plan import plan
from controller.runtime.actions import Delete, Patch, ThreeWayMerge
from controller.runtime.dry_run import reported_actions
from tests.pool_builders import pool, revision, snapshot, vm_spec, vmi, vms

OLD, NEW = vm_spec(image="v1", disks=["data"]), vm_spec(image="v2", disks=["data"])
OTHER_DISKS = vm_spec(image="v1", disks=["data"], storage_class="slow")


def seen(owner, machines, *, kept=OLD, takes_over=True, **more):
    """The snapshot of a pool with the revision `web-1`. The argument `kept` is the VM spec in the revision."""
    found = snapshot(owner, machines, revisions=[revision(pool(spec=kept), "web-1", number=1)], **more)
    return replace(found, limits=Limits(takes_over=takes_over))


def outdated(mark=None, spec=NEW, **fields):
    annotations = {TAKEOVER: mark} if mark is not None else None
    return pool(generation=2, spec=spec, annotations=annotations, **fields)


def marks(todo):
    bodies = [json.loads(each.body) for each in todo.actions if isinstance(each, Patch) and each.is_note]
    return [body["metadata"]["annotations"][TAKEOVER] for body in bodies]


def changes(todo):
    return [each for each in todo.actions if isinstance(each, ThreeWayMerge | Delete)]


def test_a_pool_whose_vms_match_is_taken_over_without_any_change():
    owner = outdated(spec=OLD)
    todo = plan(seen(owner, vms(owner, 0, 1, 2)))
    assert marks(todo) == ["done"]
    assert reported_actions(todo) == ()
    assert (todo.held, todo.notices) == ("", ())
    done = outdated("done", spec=OLD)
    assert plan(seen(done, vms(done, 0, 1, 2))).actions == ()


@pytest.mark.parametrize(
    ("spec", "consequence"), [(NEW, "restarted"), (OTHER_DISKS, "deleted with their disks")], ids=["machine", "disks"]
)
def test_an_update_that_would_change_vms_is_held_and_an_event_says_so(spec, consequence):
    owner = outdated(spec=spec)
    todo = plan(seen(owner, vms(owner, 0, 1, 2)))
    assert changes(todo) == []
    assert [mark.split()[0] for mark in marks(todo)] == ["held"]
    [notice] = todo.notices
    assert notice.reason == "TakeoverHeld"
    assert f"3 virtual machines would be {consequence}" in notice.message
    assert "web-1 differs in spec." in notice.message
    assert f"{TAKEOVER}=proceed" in notice.message
    assert todo.held.startswith("takeover: ")


def test_a_held_update_stays_held_without_another_write_or_event():
    owner = outdated()
    first = plan(seen(owner, vms(owner, 0, 1, 2)))
    held_pool = outdated(marks(first)[0])
    again = plan(seen(held_pool, vms(held_pool, 0, 1, 2)))
    assert again.actions == ()
    assert again.notices[0].once == first.notices[0].once


def test_the_restart_of_an_outdated_vmi_is_held_too():
    owner = outdated()
    machines = vms(owner, 0, 1, 2, revision="web-2")
    found = seen(owner, machines, vmis=[vmi(each, revision="web-1") for each in machines])
    found = replace(found, revisions=(*found.revisions, revision(owner, "web-2", number=2)))
    todo = plan(found)
    assert changes(todo) == []
    assert "3 virtual machines would be restarted: their revision web-1" in todo.notices[0].message
    allowed = replace(found, owner=outdated("proceed"))
    restarted = sorted((each.resource.plural, each.key.name) for each in changes(plan(allowed)))
    assert restarted == [(VMIS.plural, "web-0"), (VMIS.plural, "web-1"), (VMIS.plural, "web-2")]


ALLOWED = {
    "the annotation allows it": ({"mark": "proceed"}, {}, 3, []),
    "another mode": ({}, {"takes_over": False}, 3, []),
    "nothing to update": ({"updateStrategy": {"unmanaged": {}}}, {}, 0, ["done"]),
    "an opportunistic pool": ({"updateStrategy": {"opportunistic": {}}}, {}, 0, ["held"]),
    **{
        f"the annotation {mark!r}": ({"mark": mark}, {}, 0, ["held"])
        for mark in ("", "yes", "Proceed", "held", "held 0 x")
    },
}


@pytest.mark.parametrize(("fields", "mode", "number", "expected"), ALLOWED.values(), ids=ALLOWED)
def test_which_updates_are_allowed(fields, mode, number, expected):
    owner = outdated(**fields)
    todo = plan(seen(owner, vms(owner, 0, 1, 2), **mode))
    assert (len(changes(todo)), [mark.split()[0] for mark in marks(todo)]) == (number, expected)


def test_an_update_whose_restarts_wait_for_other_vms_is_held():
    """`web-2` is not ready, so the first reconciliation restarts no VMI. A later reconciliation restarts the VMIs."""
    owner = outdated(maxUnavailable=1)
    machines = (*vms(owner, 0, 1, revision="web-2"), *vms(owner, 2, revision="web-2", ready=False))
    started = [vmi(machines[0], revision="web-1"), vmi(machines[1], revision="web-1"), vmi(machines[2], ready=False)]
    found = seen(owner, machines, vmis=started)
    found = replace(found, revisions=(*found.revisions, revision(owner, "web-2", number=2)))
    assert [mark.split()[0] for mark in marks(plan(found))] == ["held"]


def test_the_next_change_of_the_template_allows_the_update():
    [mark] = marks(plan(seen(outdated(), vms(outdated(), 0, 1, 2))))
    changed = outdated(mark, spec=vm_spec(image="v3", disks=["data"]))
    todo = plan(seen(changed, vms(changed, 0, 1, 2)))
    assert len(changes(todo)) == 3
    assert marks(todo) == ["done"]
    assert isinstance(todo.actions[0], Patch)
