"""R9: lost answers and stale caches cause no duplicate and no surplus."""

from pathlib import Path

import pytest

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import reacts
from tests.faults.proxy.actions import HoldWatch, LoseAnswer, Refuse
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
