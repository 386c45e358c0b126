"""R9: after broken watches and writes, lost races and a new authority, the controller goes on and makes no surplus.

All broken watches happen in turn in one test, which checks that each of them has happened. So do all broken writes.
"""

from pathlib import Path
from typing import Any, get_args

import pytest

from tests.controlplane.documents import is_leaving, vm_template
from tests.controlplane.namespace import Namespace, SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import WORK_S, eventually, reacts
from tests.faults.proxy import actions
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import ThreadedProxy

pytestmark = pytest.mark.cluster

VMIS = "virtualmachineinstances"
DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def test_r9_a_mark_just_before_a_scale_in_counts_although_the_watch_is_late(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    idle_namespace.make(2)
    marked, other = idle_namespace.wait_for(2)
    idle_namespace.play(marked)
    reacts(lambda: idle_namespace.status().get("readyReplicas") == 1, what="the cache shows which VMI runs")
    held = proxy.add(Rule(Match("watch", VMIS), actions.HoldWatch(), times=None))
    idle_namespace.vmis.change(marked, {"metadata": {"annotations": {"vmherd.dev/remove": "true"}}})
    idle_namespace.scale(1)
    reacts(lambda: idle_namespace.requests("list"), what="the controller compares its cache with the server")
    proxy.remove(held)
    reacts(lambda: idle_namespace.alive().keys() == {other}, what="the marked VMI is deleted")
    assert [(each.name, each.code) for each in idle_namespace.requests("delete")] == [(marked, 200)]
    assert proxied.working


def test_g3_a_vmi_that_its_user_has_just_detached_is_not_deleted(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    """The VMI leaves after the plan was made, and the cache of the controller does not show it yet. The detached VMI
    does not run, so the controller tries to delete it first.
    """
    idle_namespace.make(2)
    detached, running = idle_namespace.wait_for(2)
    idle_namespace.play(running)
    reacts(lambda: idle_namespace.status().get("readyReplicas") == 1, what="the cache shows which VMI runs")
    held = proxy.add(Rule(Match("watch", VMIS), actions.HoldWatch(), times=None))
    refused = proxy.add(Rule(Match("delete", VMIS), actions.Refuse(503), times=None))
    idle_namespace.scale(1)
    reacts(lambda: proxy.decisions(refused), what="the controller tries to delete the VMI")
    idle_namespace.vmis.change(detached, {"metadata": {"ownerReferences": None, "labels": {"app": "other"}}})
    proxy.remove(refused)
    eventually(lambda: idle_namespace.requests("delete"), what="the controller tries again")
    proxy.remove(held)
    reacts(lambda: idle_namespace.status().get("replicas") == 1, what="the set has one VMI")
    assert idle_namespace.alive().keys() == {detached, running}
    assert [(each.name, each.code) for each in idle_namespace.requests("delete")] == [(detached, 409)]
    assert proxied.working


MARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "protected": ("", {"metadata": {"annotations": {"vmherd.dev/protect": "true"}}}),
    "busy": ("", {"metadata": {"annotations": {"vmherd.dev/busy-until": "2999-01-01T00:00:00Z"}}}),
    "snapshot": ("/status", {"status": {"snapshotInProgress": "now"}}),
}


@pytest.mark.parametrize("mark", MARKS)
def test_g3_a_vm_that_its_user_has_just_marked_is_not_deleted(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess, mark: str
) -> None:
    """The plan was made before the mark, and the cache of the controller does not show the mark yet. The request names
    the version of the object.
    """
    pools, (subresource, change) = idle_namespace.pools, MARKS[mark]
    pools.make(2, template=vm_template(runStrategy="Halted"), scaleInStrategy=DESCENDING)
    pools.wait_until_updated(2)
    pools.settle()
    held = proxy.add(Rule(Match("watch", "virtualmachines"), actions.HoldWatch(), times=None))
    refused = proxy.add(Rule(Match("delete", "virtualmachines"), actions.Refuse(503), times=None))
    pools.scale(1)
    reacts(lambda: proxy.decisions(refused), what="the controller tries to delete the VM")
    pools.vms.change(f"pool-1{subresource}", change)
    proxy.remove(refused)
    eventually(lambda: pools.answers("delete")["pool-1", 409], what="the controller tries again")
    proxy.remove(held)
    pools.settle()
    assert "pool-1" not in pools.deleted()
    assert not is_leaving(pools.vms.get("pool-1"))
    assert proxied.working


def test_a_leader_whose_pass_is_cut_off_by_the_shutdown_does_not_release_its_lease(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, tmp_path: Path
) -> None:
    flags = ("--shutdown-grace", "1s")
    with controller_process(idle_namespace.plane, tmp_path, *flags, through=proxy.write_kubeconfig) as program:
        refused = proxy.add(Rule(Match("create", VMIS), actions.Refuse(503, retry_after="9"), times=None))
        idle_namespace.make(1)
        reacts(lambda: proxy.decisions(refused), what="a pass that waits")
        assert program.stop() == 0
        assert program.lines(msg="a running pass did not finish within the shutdown grace")
        assert not program.lines(msg="released the lease")


BROKEN_WATCHES: tuple[actions.Action, ...] = (
    *(actions.Corrupt(how) for how in get_args(actions.Corruption)),
    actions.CutWatch(0),
    actions.CutWatch(1),
    actions.FailWatch(410),
    actions.FailWatch(500),
    actions.FailWatch(504, cause="ResourceVersionTooLarge", retry_after_seconds=1),
    actions.EndWatch(),
    actions.EndWatch(clean=False),
    actions.RepeatEvent(),
    actions.OmitEvent(),
)
BROKEN_WRITES = (actions.LoseAnswer(), actions.CutAnswer(), actions.Reset(), actions.Refuse(500))


def replaced(sets: SetNamespace, victim: str) -> bool:
    """True if two VMIs exist and neither is the victim. The replacement may have the same name as the victim."""
    uids = [vmi["metadata"]["uid"] for vmi in sets.alive().values()]
    return len(uids) == 2 and victim not in uids


@pytest.mark.timeout(300)
def test_r9_after_each_broken_watch_a_deleted_vmi_is_replaced_once(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    version = idle_namespace.make(2)["metadata"]["resourceVersion"]
    for number, action in enumerate((actions.ReplayWatch(version), *BROKEN_WATCHES), 3):
        alive = idle_namespace.wait_for(2)
        gone = next(iter(alive))
        victim = alive[gone]["metadata"]["uid"]
        rule = proxy.add(Rule(Match("watch", VMIS), action))
        if isinstance(action, actions.ReplayWatch):
            proxy.add(Rule(Match("watch", VMIS), actions.EndWatch()))
        idle_namespace.vmis.delete(gone)
        eventually(lambda: replaced(idle_namespace, victim), what=f"the replacement after {action}")  # noqa: B023
        eventually(lambda: proxy.decisions(rule), what=f"the fault {action}")  # noqa: B023
        proxy.remove(rule)
        assert idle_namespace.created().total() == number, action
    assert proxied.working


@pytest.mark.parametrize("kind", ["set", "pool"])
def test_r9_after_each_broken_write_each_member_was_written_once(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess, kind: str
) -> None:
    """The server refuses the write, never gets it, or carries it out, and its answer does not arrive."""
    owner: Namespace = idle_namespace.pools if kind == "pool" else idle_namespace
    owner.make(1)
    owner.wait_until_updated(1)
    for number, action in enumerate(BROKEN_WRITES, 1):
        for verb, replicas in (("create", 2), ("delete", 1)):
            rule = proxy.add(Rule(Match(verb, owner.members), action))
            owner.scale(replicas)
            eventually(lambda: proxy.decisions(rule), what=f"the fault {action}")  # noqa: B023
            owner.wait_until_updated(replicas)
            owner.settle()
        assert (owner.created().total(), owner.deleted().total()) == (number + 1, number), action
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
