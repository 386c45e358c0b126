"""R9: broken answers and broken watches cause no duplicate and no missing VMI, and the controller goes on.

All faults of a test happen in turn, and the controller is not restarted in between. The test checks that each fault has
happened.
"""

from pathlib import Path
from typing import get_args

import pytest

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import WORK_S, eventually
from tests.faults.proxy.actions import (
    Action,
    Coalesce,
    Corrupt,
    Corruption,
    CutAnswer,
    CutWatch,
    Delay,
    Dribble,
    EndWatch,
    EnlargeEvent,
    FailWatch,
    OmitEvents,
    Refuse,
    RepeatEvent,
    Reset,
)
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import ThreadedProxy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

VMIS = "virtualmachineinstances"
BROKEN: tuple[Action, ...] = tuple(Corrupt(how) for how in get_args(Corruption))
BROKEN_ANSWERS: tuple[Action, ...] = (
    *BROKEN,
    CutAnswer(),
    CutAnswer(15, gzip=True),
    Dribble(1),
    Delay(before_s=0.5, answer_s=0.5),
    Reset(),
    Refuse(429, retry_after="Thu, 01 Jan 2026 00:00:00 GMT"),
    Refuse(429, retry_after="soon"),
    Refuse(503),
)
BROKEN_WATCHES: tuple[Action, ...] = (
    *BROKEN,
    CutWatch(0),
    CutWatch(1),
    CutWatch(),
    Dribble(1),
    EnlargeEvent(),
    RepeatEvent(),
    Coalesce(0.3),
    OmitEvents(),
    EndWatch(),
    EndWatch(clean=False),
    FailWatch(410),
    FailWatch(500),
    FailWatch(504, cause="ResourceVersionTooLarge", retry_after_seconds=1),
)


def replaced(sets: SetNamespace, victim: str) -> bool:
    """True if two VMIs exist and neither is the victim. The replacement may have the same name as the victim."""
    uids = [vmi["metadata"]["uid"] for vmi in sets.alive().values()]
    return len(uids) == 2 and victim not in uids


def test_r9_each_broken_answer_to_a_create_leads_to_one_vmi(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    idle_namespace.make(1)
    alive = idle_namespace.wait_for(1)
    for replicas, action in enumerate(BROKEN_ANSWERS, 2):
        rule = proxy.add(Rule(Match("create", VMIS), action))
        idle_namespace.change({"spec": {"replicas": replicas}})
        alive = idle_namespace.wait_for(replicas)
        assert len(proxy.decisions(rule)) == 1, action
    assert idle_namespace.created() == dict.fromkeys(alive, 1)
    assert proxied.working


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
