"""The barrier of the tests: `settled` returns only after the controller has seen all writes and has nothing to do."""

import pytest

from tests.barrier import settled
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import ControllerProcess
from tests.faults.proxy.actions import HoldWatch
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import ThreadedProxy

pytestmark = pytest.mark.cluster

VMIS = "virtualmachineinstances"
HELD_S = 2.0
LABEL = {"metadata": {"labels": {"a": "b"}}}


def test_settled_waits_for_writes_that_the_controller_has_not_seen(
    idle_namespace: SetNamespace, proxy: ThreadedProxy, proxied: ControllerProcess
) -> None:
    sets, admin = idle_namespace, idle_namespace.admin

    def is_settled(*, within_s: float = 60.0) -> None:
        settled(proxied.health_url, admin, namespace=sets.namespace, within_s=within_s)

    sets.make(3)
    is_settled()
    assert len(sets.vmis()) == 3, "all its work is done"
    is_settled(within_s=5)  # nothing has changed since, so no event can tell that the caches are up to date
    stranger = sets.make_vmi("stranger", labels={"app": "other"})
    is_settled()
    held = proxy.add(Rule(Match("watch", VMIS), HoldWatch(), times=None))
    for write in (lambda: sets.vmis.change("stranger", LABEL), lambda: sets.vmis.delete("stranger")):
        write()
        with pytest.raises(pytest.fail.Exception, match=f"the cache of {VMIS}.kubevirt.io has not seen the version"):
            is_settled(within_s=HELD_S)
    settled(proxied.health_url, admin, after=stranger["metadata"]["resourceVersion"], within_s=5)
    proxy.remove(held)
    is_settled()


def test_a_write_of_the_controller_or_a_change_that_it_does_not_see_fails_a_check_for_rest(sets: SetNamespace) -> None:
    sets.make(1)
    with pytest.raises(AssertionError), sets.at_rest():
        sets.scale(2)
    with sets.at_rest():
        sets.make_vmi("stranger", labels={"app": "other"})
