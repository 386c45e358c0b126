"""R9: lost answers, stale caches and broken watches cause no duplicate, no surplus and no second delete."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.actions import CutWatch, HoldWatch, LoseAnswer, Refuse
from tests.faults.rules import Match, Rule
from tests.faults.threads import ThreadedProxy
from tests.integration.controller_process import (
    PATIENT_LEASE,
    ControllerProcess,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
)
from tests.integration.idle_plane import created, deleted

pytestmark = pytest.mark.cluster

VMIS = "virtualmachineinstances"
CREATE = ("create", VMIS)


def change_template(sets: ReplicaSetNamespace, note: str) -> None:
    sets.change_set({"spec": {"template": {"metadata": {"annotations": {"note": note}}}}})


def test_r9_creates_whose_answers_are_lost_make_no_duplicate(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    lost = proxy.add(Rule(Match("create", VMIS), LoseAnswer(), times=None, every=3))
    idle_namespace.make_set(40)
    alive = idle_namespace.wait_for(40)
    stays(lambda: idle_namespace.vmis().keys() == alive.keys(), for_s=2, what="the VMIs")
    assert sum(answer.server_code < 300 for answer in proxy.decisions(lost)) >= 5
    assert created(idle_namespace) == dict.fromkeys(alive, 1)
    assert not deleted(idle_namespace)
    assert proxied.working


def test_r9_deletes_whose_answers_are_lost_delete_no_other_vmi(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    idle_namespace.make_set(40)
    idle_namespace.wait_for(40)
    lost = proxy.add(Rule(Match("delete", VMIS), LoseAnswer(), times=None, every=2))
    idle_namespace.change_set({"spec": {"replicas": 10}})
    alive = idle_namespace.wait_for(10)
    stays(lambda: idle_namespace.vmis().keys() == alive.keys(), for_s=2, what="the wanted VMIs")
    assert sum(answer.server_code < 300 for answer in proxy.decisions(lost)) >= 5
    assert (deleted(idle_namespace).total(), len(deleted(idle_namespace))) == (30, 30)
    assert created(idle_namespace).total() == 40
    assert proxied.working


def test_r9_a_stale_cache_leads_to_no_surplus_create(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    held = proxy.add(Rule(Match("watch", VMIS), HoldWatch(), times=None))
    idle_namespace.make_set(5)
    eventually(lambda: len(idle_namespace.vmis()) == 5, what="five VMIs")
    before = proxied.passes(idle_namespace.namespace)
    for number in range(4):
        change_template(idle_namespace, str(number))
        stays(lambda: len(idle_namespace.vmis()) == 5, for_s=0.3, what="five VMIs")
    eventually(lambda: proxied.passes(idle_namespace.namespace) >= before + 4, what="each change is reconciled")
    idle_namespace.change_set({"spec": {"replicas": 6}})
    stays(lambda: len(idle_namespace.vmis()) == 5, for_s=0.5, what="no create before the cache is up to date")
    proxy.remove(held)
    alive = idle_namespace.wait_for(6)
    assert created(idle_namespace) == dict.fromkeys(alive, 1)


def test_r9_a_stale_cache_leads_to_no_second_delete(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    idle_namespace.make_set(5)
    idle_namespace.wait_for(5)
    held = proxy.add(Rule(Match("watch", VMIS), HoldWatch(), times=None))
    idle_namespace.change_set({"spec": {"replicas": 3}})
    eventually(lambda: len(idle_namespace.vmis()) == 3, what="three VMIs")
    for number in range(4):
        change_template(idle_namespace, str(number))
        stays(lambda: len(idle_namespace.vmis()) == 3, for_s=0.3, what="three VMIs")
    assert len(idle_namespace.requests("delete")) == 2
    proxy.remove(held)
    idle_namespace.wait_for(3)
    assert len(idle_namespace.requests("delete")) == 2
    assert created(idle_namespace).total() == 5
    assert proxied.working


def test_g3_a_vmi_that_its_user_has_just_detached_is_not_deleted(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    """The cache of the controller does not show yet that the VMI has left. The detached VMI does not run, so the
    controller tries to delete it first.
    """
    idle_namespace.make_set(2)
    detached, running = idle_namespace.wait_for(2)
    idle_namespace.play(running)
    eventually(lambda: idle_namespace.status().get("readyReplicas") == 1, what="the cache shows which VMI runs")
    held = proxy.add(Rule(Match("watch", VMIS), HoldWatch(), times=None))
    idle_namespace.change_vmi(detached, {"metadata": {"ownerReferences": None, "labels": {"app": "other"}}})
    idle_namespace.change_set({"spec": {"replicas": 1}})
    eventually(lambda: idle_namespace.requests("delete"), what="the controller tries to delete the VMI")
    proxy.remove(held)
    eventually(lambda: idle_namespace.status().get("replicas") == 1, what="the set has one VMI")
    assert idle_namespace.alive().keys() == {detached, running}
    assert [(each.name, each.code) for each in idle_namespace.requests("delete")] == [(detached, 409)]
    assert proxied.working


def test_r9_a_watch_cut_in_the_middle_of_a_line_continues_without_a_gap(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    idle_namespace.make_set(3)
    victim = next(iter(idle_namespace.wait_for(3)))
    cut = proxy.add(Rule(Match("watch", VMIS), CutWatch()))
    idle_namespace.delete_vmi(victim)
    eventually(lambda: proxy.decisions(cut) and len(idle_namespace.vmis()) == 3, what="the replacement")
    idle_namespace.wait_for(3)
    eventually(lambda: created(idle_namespace).total() == 4, what="one create more")
    assert [line["after"] for line in proxied.lines(msg="following again")]


def test_after_a_429_the_controller_pauses_for_the_retry_after_of_the_server(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    refused = proxy.add(Rule(Match("create", VMIS), Refuse(429, retry_after="2")))
    idle_namespace.make_set(3)
    idle_namespace.wait_for(3)
    tries = [each for each in proxy.call(lambda inner: inner.log) if (each.verb, each.request.resource) == CREATE]
    assert [each.rule for each in tries] == [refused, 0, 0, 0]
    assert 1.9 < tries[1].time - tries[0].time < 20
    assert created(idle_namespace).total() == 3
    assert proxied.working


def test_r9_a_write_that_a_gateway_answered_with_503_is_looked_up_and_done_once(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    refused = proxy.add(Rule(Match("create", VMIS), Refuse(503), times=3))
    idle_namespace.make_set(4)
    alive = idle_namespace.wait_for(4)
    assert len(proxy.decisions(refused)) == 3
    assert created(idle_namespace) == dict.fromkeys(alive, 1)
    assert proxied.working


def test_a_leader_whose_pass_is_cut_off_by_the_shutdown_does_not_release_its_lease(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, tmp_path: Path
) -> None:
    flags = (*PATIENT_LEASE, "--shutdown-grace", "1s")
    with controller_process(idle_namespace.plane, tmp_path, *flags, through=proxy.write_kubeconfig) as program:
        refused = proxy.add(Rule(Match("create", VMIS), Refuse(503, retry_after="9"), times=None))
        idle_namespace.make_set(1)
        eventually(lambda: proxy.decisions(refused), what="a pass that waits")
        assert program.stop() == 0
        assert program.lines(msg="a running pass did not finish within the shutdown grace")
        assert not program.lines(msg="released the lease")
