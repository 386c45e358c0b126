"""What `rollout status`, `why`, `plan -f` and `rollout resume` do with an update in steps."""

from typing import Any

import pytest

from controller.kubevirt.annotations import PARTITION, PARTITION_STEP
from controller.pool.spec.partition import noted_step, step_note
from informers.meta import ObjectKey
from plugin.views.forecast import forecast_of
from tests import pool_builders
from tests.plugin import herds
from tests.plugin.cluster import POOL, Cluster, Shell
from tests.pool_builders import intent_of

KEY = ObjectKey("default", "web")
STEP = "step 1 of 2 updates the ordinals from 2 on; the next step begins when they have been ready for 600 s"


def pool_in_steps(cluster: Cluster, **notes: str) -> Any:
    """A pool of three VMs. The VM of the first step has been updated a minute ago."""
    old = pool_builders.pool(generation=2)
    spec, status = pool_builders.vm_spec(image="v2"), {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 1}
    annotations = {PARTITION: "2:10m,0", **notes}
    pool = pool_builders.pool(
        generation=3, spec=spec, annotations=annotations, status={**status, "observedGeneration": 3}
    )
    late, done = pool_builders.vms(pool, 0, 1, revision="web-2"), pool_builders.vms(pool, 2, revision="web-3")
    vmis = [*map(pool_builders.vmi, late), *(pool_builders.vmi(each, ready_for_s=60) for each in done)]
    revisions = [pool_builders.revision(old, "web-2", number=2), pool_builders.revision(pool, "web-3", number=3)]
    cluster.put_pool(pool, [*late, *done], vmis, revisions)
    return pool


def test_status_and_why_name_the_step_and_when_the_next_one_begins(cluster: Cluster, shell: Shell):
    pool = pool_in_steps(cluster)
    since = pool_builders.seconds_ago(60)
    pool_in_steps(cluster, **{PARTITION_STEP: step_note(pool.metadata, intent_of(pool).template.digest, 1, since)})
    assert f"1 out of 3 new VMs have been updated; {STEP}" in shell.output("rollout status vmpool/web --watch=false")
    answer = shell.output("why vmpool/web")
    assert f"  held     update: {STEP}, or after kubectl vmherd rollout resume" in answer
    assert "RolloutStep in 9m" in answer
    rows = shell.output("tree vmpool/web").splitlines()[2:]
    assert [row.endswith("waits for a later step") for row in rows] == [True, True, False]


def test_resume_begins_the_next_step_and_the_last_step_has_no_next_one(cluster: Cluster, shell: Shell):
    pool = pool_in_steps(cluster)
    assert shell.output("rollout resume vmpool/web") == "virtualmachinepool.pool.kubevirt.io/web resumed\n"
    after = cluster.server.find(POOL, KEY)
    assert noted_step(after.metadata, intent_of(pool).template.digest) == 2
    last = 'error: virtualmachinepools.pool.kubevirt.io "web" is not paused, and its update is in the last step'
    assert shell.error("rollout resume vmpool/web") == last


def test_resume_ends_a_pause_before_it_begins_a_step(cluster: Cluster, shell: Shell):
    pool_in_steps(cluster)
    cluster.server.change(POOL, KEY, {"spec": {"paused": True}})
    shell.output("rollout resume vmpool/web")
    document = cluster.document(POOL, "web")
    assert "paused" not in document["spec"]
    assert PARTITION_STEP not in document["metadata"]["annotations"]


@pytest.mark.parametrize("text", ["2:10m,0", "2"])
def test_resume_refuses_a_pool_that_has_nothing_to_begin(cluster: Cluster, shell: Shell, text: str):
    herds.pool_at_rest(cluster, annotations={PARTITION: text})
    assert "is not paused" in shell.error("rollout resume vmpool/web")


def test_the_forecast_says_which_vms_wait_for_a_later_step():
    owner = pool_builders.pool(generation=2, spec=pool_builders.vm_spec(image="v2"), annotations={PARTITION: "2,0"})
    vms = pool_builders.vms(owner, 0, 1, 2)
    revisions = [pool_builders.revision(pool_builders.pool(), "web-1", number=1)]
    first, *others = forecast_of(pool_builders.snapshot(owner, vms, revisions=revisions)).members
    assert (first.name, first.turn, first.held) == ("web-2", 1, "")
    assert {each.held for each in others} == {f"it waits for a later step: {PARTITION} is 2,0"}
