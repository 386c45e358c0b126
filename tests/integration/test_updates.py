"""P16, P31: the order of the requests for a new pool, and what an update waits for."""

from collections import Counter
from typing import Any

import pytest

from tests.controlplane.documents import data_volume_template, vm_template
from tests.controlplane.namespace import PoolNamespace
from tests.controlplane.waits import reacts
from tests.integration.renewal import VMS

pytestmark = pytest.mark.cluster


def plain() -> dict[str, Any]:
    """A template as a person writes it."""
    template = vm_template(disks=("root",))
    machine = template["spec"]["template"]["spec"]
    machine["domain"] = {"devices": machine["domain"]["devices"], "memory": {"guest": "1024Mi"}}
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size="1024Mi")]
    return template


def test_p16_a_new_pool_gets_its_finalizer_first_then_revision_vms_and_status(pools: PoolNamespace) -> None:
    pools.make(5)
    pools.wait_ready(5)
    written = sorted(pools.requests("create", "patch"), key=lambda each: each.request_received_timestamp)
    first = list(dict.fromkeys((each.resource, each.subresource) for each in written))
    assert first == [
        ("virtualmachinepools", ""),
        ("controllerrevisions", ""),
        (VMS, ""),
        ("virtualmachinepools", "status"),
    ]
    assert Counter(each.code for each in pools.requests("create")) == {201: 6}, "nothing is asked for twice"


def test_p31_an_update_that_waits_for_its_user_says_so_in_the_status_and_in_an_event(pools: PoolNamespace) -> None:
    pools.make(1, template=plain())
    pools.wait_ready(1)
    pools.kubectl("annotate", "vm/pool-0", "vmherd.dev/protect=true")
    changed = plain()
    changed["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size="1024Mi", storageClassName="other")]
    pools.change_template(changed)
    stalled = reacts(lambda: pools.condition("Stalled"), what="the update is stalled")
    text = "update: pool-0 waits: it is protected by vmherd.dev/protect"
    assert (stalled["reason"], stalled["message"], pools.status()["problem"]) == ("UpdateHeld", text, text)
    assert any("it is protected" in each for each in pools.messages("UpdateHeld"))
    pools.kubectl("annotate", "vm/pool-0", "vmherd.dev/protect-")
    reacts(lambda: pools.condition("Stalled") is None, what="the update goes on")
