"""The field `status.activePods` of a VMI, with and without simulated virt-launcher Pods."""

import msgspec

from sandbox.settings import READY_AFTER
from sandbox.vmi_status import detail_patch, pod_uid
from sandbox.vmis import VMIState, node_for
from tests.sandbox.lives import Life


def test_only_a_vmi_without_a_pod_gets_an_active_pod_with_a_derived_uid() -> None:
    derived, simulated = Life().live(10), Life(has_pod=True).live(10)
    assert derived.document["status"]["activePods"] == {pod_uid(derived.vmi): node_for(derived.vmi)}
    assert "activePods" not in simulated.document["status"]
    assert simulated.seen == derived.seen
    assert simulated.seen[-1][1] == VMIState("Running")


def test_the_detail_full_writes_no_derived_uid_for_a_vmi_with_a_pod() -> None:
    scheduling = Life({READY_AFTER: "4s"}, has_pod=True).live(1.5)
    assert scheduling.seen[-1][1].phase == "Scheduling"
    assert detail_patch(scheduling.vmi) is None
    assert detail_patch(msgspec.structs.replace(scheduling.vmi, has_pod=False)) is not None
