"""R9: a watch loses events. The controller finds the contradiction between its cache and the server, and lists the
objects again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.actions import OmitEvents
from tests.faults.rules import Match, Rule
from tests.faults.threads import ThreadedProxy
from tests.integration.controller_process import PATIENT_LEASE, ReplicaSetNamespace, controller_process, eventually
from tests.integration.idle_plane import created

pytestmark = pytest.mark.cluster

ALL = 1_000_000


def test_r9_vmis_whose_added_events_are_lost_are_counted_after_a_new_list(
    idle_namespace: ReplicaSetNamespace, proxy: ThreadedProxy, tmp_path: Path
) -> None:
    with controller_process(idle_namespace.plane, tmp_path, *PATIENT_LEASE, through=proxy.write_kubeconfig) as program:
        proxy.add(Rule(Match("watch", "virtualmachineinstances", event="ADDED"), OmitEvents(ALL)))
        idle_namespace.make_vmi("other", labels={"app": "other"})
        idle_namespace.make_set(3)
        eventually(lambda: len(idle_namespace.vmis()) == 4, what="three VMIs of the set")
        # This event reaches the controller. So the cache claims to show all earlier changes.
        idle_namespace.change_vmi("other", {"metadata": {"labels": {"app": "another"}}})
        eventually(lambda: idle_namespace.status().get("replicas") == 3, what="the status counts the VMIs")
        assert created(idle_namespace).total() == 3
        assert 'vmherd_lists_total{reason="contradiction",resource="virtualmachineinstances.kubevirt.io"} 1' in (
            program.metrics()
        )
