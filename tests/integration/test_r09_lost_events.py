"""R9: a watch loses events. The controller finds the contradiction between its cache and the server, and lists the
objects again.
"""

from pathlib import Path

import pytest

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually
from tests.faults.proxy.actions import OmitEvents
from tests.faults.proxy.rules import Match, Rule
from tests.faults.proxy.threads import ThreadedProxy

pytestmark = pytest.mark.cluster

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
