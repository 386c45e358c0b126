"""R9: lost and broken answers, lost events, broken watches and stale caches cause no duplicate and no surplus.

All broken watches happen in turn in one test, which checks that each of them has happened.
`tests/faults/samples` has the other faults. The barrier of the tests, `settled`, waits until a cache is up to date.
"""

from pathlib import Path
from typing import get_args

import pytest

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import WORK_S, eventually, reacts
from tests.faults.proxy.actions import (
    Action,
    Corrupt,
    Corruption,
    CutWatch,
    FailWatch,
    HoldWatch,
    LoseAnswer,
    OmitEvents,
    Refuse,
)
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import ThreadedProxy

pytestmark = pytest.mark.cluster

VMIS = "virtualmachineinstances"


def reconcile_again(sets: SetNamespace, note: str) -> None:
    """Change the template, and wait for a reconciliation. The cache of VMIs stays as it is."""
    before = sets.passes
    sets.change({"spec": {"template": {"metadata": {"annotations": {"note": note}}}}})
    reacts(lambda: sets.passes > before, what="the change is reconciled")


def test_r9_creates_whose_answers_are_lost_make_no_duplicate(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    lost = proxy.add(Rule(Match("create", VMIS), LoseAnswer(), times=None, every=3))
    idle_namespace.make(40)
    alive = idle_namespace.wait_for(40)
    idle_namespace.settle()
    assert idle_namespace.vmis().keys() == alive.keys()
    assert sum(answer.server_code < 300 for answer in proxy.decisions(lost)) >= 5
    assert idle_namespace.created() == dict.fromkeys(alive, 1)
    assert not idle_namespace.deleted()
    assert proxied.working


def test_r9_a_stale_cache_leads_to_no_surplus_create(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    held = proxy.add(Rule(Match("watch", VMIS), HoldWatch(), times=None))
    idle_namespace.make(5)
    reacts(lambda: len(idle_namespace.vmis()) == 5, what="five VMIs")
    for number in range(4):
        reconcile_again(idle_namespace, str(number))
        assert len(idle_namespace.vmis()) == 5
    idle_namespace.scale(6)
    reconcile_again(idle_namespace, "more")
    assert len(idle_namespace.vmis()) == 5, "no create before the cache is up to date"
    proxy.remove(held)
    alive = idle_namespace.wait_for(6)
    assert idle_namespace.created() == dict.fromkeys(alive, 1)


def test_g3_a_vmi_that_its_user_has_just_detached_is_not_deleted(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    """The cache of the controller does not show yet that the VMI has left. The detached VMI does not run, so the
    controller tries to delete it first.
    """
    idle_namespace.make(2)
    detached, running = idle_namespace.wait_for(2)
    idle_namespace.play(running)
    reacts(lambda: idle_namespace.status().get("readyReplicas") == 1, what="the cache shows which VMI runs")
    held = proxy.add(Rule(Match("watch", VMIS), HoldWatch(), times=None))
    idle_namespace.vmis.change(detached, {"metadata": {"ownerReferences": None, "labels": {"app": "other"}}})
    idle_namespace.scale(1)
    reacts(lambda: idle_namespace.requests("delete"), what="the controller tries to delete the VMI")
    proxy.remove(held)
    reacts(lambda: idle_namespace.status().get("replicas") == 1, what="the set has one VMI")
    assert idle_namespace.alive().keys() == {detached, running}
    assert [(each.name, each.code) for each in idle_namespace.requests("delete")] == [(detached, 409)]
    assert proxied.working


def test_a_leader_whose_pass_is_cut_off_by_the_shutdown_does_not_release_its_lease(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, tmp_path: Path
) -> None:
    flags = ("--shutdown-grace", "1s")
    with controller_process(idle_namespace.plane, tmp_path, *flags, through=proxy.write_kubeconfig) as program:
        refused = proxy.add(Rule(Match("create", VMIS), Refuse(503, retry_after="9"), times=None))
        idle_namespace.make(1)
        reacts(lambda: proxy.decisions(refused), what="a pass that waits")
        assert program.stop() == 0
        assert program.lines(msg="a running pass did not finish within the shutdown grace")
        assert not program.lines(msg="released the lease")


ALL = 1_000_000


def test_r9_vmis_whose_added_events_are_lost_are_counted_after_a_new_list(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, tmp_path: Path
) -> None:
    with controller_process(idle_namespace.plane, tmp_path, through=proxy.write_kubeconfig) as program:
        proxy.add(Rule(Match("watch", "virtualmachineinstances", event="ADDED"), OmitEvents(ALL)))
        idle_namespace.make_vmi("other", labels={"app": "other"})
        idle_namespace.make(3)
        eventually(lambda: len(idle_namespace.vmis()) == 4, what="three VMIs of the set")
        # This event reaches the controller. So the cache claims to show all earlier changes.
        idle_namespace.vmis.change("other", {"metadata": {"labels": {"app": "another"}}})
        eventually(lambda: idle_namespace.status().get("replicas") == 3, what="the status counts the VMIs")
        assert idle_namespace.created().total() == 3
        assert 'vmherd_lists_total{reason="contradiction",resource="virtualmachineinstances.kubevirt.io"} 1' in (
            program.metrics()
        )


BROKEN_WATCHES: tuple[Action, ...] = (
    *(Corrupt(how) for how in get_args(Corruption)),
    CutWatch(0),
    CutWatch(1),
    FailWatch(504, cause="ResourceVersionTooLarge", retry_after_seconds=1),
)


def replaced(sets: SetNamespace, victim: str) -> bool:
    """True if two VMIs exist and neither is the victim. The replacement may have the same name as the victim."""
    uids = [vmi["metadata"]["uid"] for vmi in sets.alive().values()]
    return len(uids) == 2 and victim not in uids


@pytest.mark.timeout(300)
def test_r9_after_each_broken_watch_a_deleted_vmi_is_replaced_once(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    idle_namespace.make(2)
    for number, action in enumerate(BROKEN_WATCHES, 3):
        alive = idle_namespace.wait_for(2)
        gone = next(iter(alive))
        victim = alive[gone]["metadata"]["uid"]
        rule = proxy.add(Rule(Match("watch", VMIS), action))
        idle_namespace.vmis.delete(gone)
        eventually(lambda: replaced(idle_namespace, victim), what=f"the replacement after {action}")  # noqa: B023
        eventually(lambda: proxy.decisions(rule), what=f"the fault {action}")  # noqa: B023
        proxy.remove(rule)
        assert idle_namespace.created().total() == number, action
    assert proxied.working


def test_after_a_change_of_the_ca_the_controller_goes_on_with_the_new_ca_file(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, tmp_path: Path
) -> None:
    with controller_process(idle_namespace.plane, tmp_path, through=proxy.write_kubeconfig) as program:
        idle_namespace.make(1)
        idle_namespace.wait_for(1)
        proxy.call(lambda inner: inner.change_authority())
        idle_namespace.change({"spec": {"replicas": 2}})
        eventually(lambda: program.lines(msg="waiting"), within_s=WORK_S, what="the controller trusts no new authority")
        assert len(idle_namespace.vmis()) == 1
        proxy.call(lambda inner: inner.write_ca_files())
        idle_namespace.wait_for(2, within_s=60)
        assert idle_namespace.created().total() == 2
        assert program.working
