"""`kubectl vmherd scale`: the preview names the VMs that the controller would choose."""

from msgspec.structs import replace

from plugin.views.scaling import preview, with_replicas
from tests import builders, pool_builders
from tests.builders import snapshot as set_snapshot


def test_the_preview_counts_new_vms_and_not_the_revision_that_is_created_too():
    pool = pool_builders.pool(replicas=6, generation=4)
    without_revisions = pool_builders.snapshot(pool, pool_builders.vms(pool, *range(6)), revisions=[])
    assert preview(with_replicas(without_revisions, 7)).creating == ("web-6",)


def test_the_preview_of_a_set_follows_its_plans():
    owner = builders.replicaset(replicas=3)
    vmis = [
        builders.vmi("a", owner=owner, annotations={"vmherd.dev/deletion-cost": "-1"}),
        builders.vmi("b", owner=owner, annotations={"vmherd.dev/protect": "true"}, ready=False),
        builders.vmi("c", owner=owner),
    ]
    given = preview(with_replicas(set_snapshot(owner, vmis), 1))
    assert [(each.name, each.why) for each in given.leaving] == [("a", "deletion cost -1"), ("c", "")]
    assert [each.name for each in given.staying] == ["b"]
    assert preview(with_replicas(set_snapshot(owner, vmis), 0)).held == "1 surplus VMIs are protected"
    assert len(preview(with_replicas(set_snapshot(owner, vmis), 5)).creating) == 2


def test_the_preview_of_a_one_shot_pool_names_the_finished_vms_first():
    pool = pool_builders.pool(
        replicas=4,
        spec=pool_builders.vm_spec(run_strategy="Once"),
        annotations={"vmherd.dev/replace-finished": "true", "vmherd.dev/drain-seconds": "60"},
    )
    vms = pool_builders.vms(pool, 0, 1, 2, 3, spec=pool_builders.vm_spec(run_strategy="Once"))
    ended = {"web-1": "Succeeded", "web-3": "Failed"}
    vmis = [pool_builders.vmi(vm, phase=ended.get(vm.metadata.name, "Running")) for vm in vms]
    snapshot = pool_builders.snapshot(pool, vms, vmis=vmis)
    assert [(each.name, each.why) for each in preview(with_replicas(snapshot, 3)).leaving] == [("web-1", "finished")]
    given = preview(with_replicas(snapshot, 1))
    assert [(each.name, each.why) for each in given.leaving[:2]] == [("web-1", "finished"), ("web-3", "finished")]
    assert len(given.leaving) == 3
    assert given.drain == "VMs that run leave when they have drained, after at most 60 s"


def test_the_preview_knows_that_healing_takes_the_surplus():
    ascending = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
    pool = pool_builders.pool(replicas=2, scaleInStrategy=ascending, autohealing={"startUpFailureThreshold": 3})
    failing = pool_builders.vm("web-2", owner=pool, ready=False, ready_for_s=1000, failures=5)
    snapshot = pool_builders.snapshot(pool, [*pool_builders.vms(pool, 0, 1), failing])
    assert [(each.name, each.why) for each in preview(snapshot).leaving] == [("web-2", "failed")]
    both = preview(with_replicas(snapshot, 1)).leaving
    assert [(each.name, each.why) for each in both] == [("web-2", "failed"), ("web-0", "")]


def test_the_preview_needs_as_many_plans_as_the_controller():
    pool = pool_builders.pool(replicas=7)
    vms = [pool_builders.vm(f"web-{n}", owner=pool, ready=n != 3) for n in range(7)]
    at_once = pool_builders.snapshot(pool, vms)
    in_parts = pool_builders.snapshot(pool, vms, burst=2)
    assert preview(with_replicas(in_parts, 1)) == preview(with_replicas(at_once, 1))
    owner = builders.replicaset(replicas=7)
    snapshot = set_snapshot(owner, [builders.vmi(name, owner=owner, node=f"node-{name < 'c'}") for name in "abcdefg"])
    assert preview(with_replicas(replace(snapshot, burst=2), 1)) == preview(with_replicas(snapshot, 1))


def test_vms_leave_although_they_must_drain_and_get_a_finalizer_before():
    keeps = {"proactive": {"statePreservation": "Offline"}}
    pool = pool_builders.pool(replicas=1, scaleInStrategy=keeps, annotations={"vmherd.dev/drain-seconds": "60"})
    vms = pool_builders.vms(pool, 0, 1, 2, finalizers=(), spec=pool_builders.vm_spec(disks=("data",)))
    snapshot = pool_builders.snapshot(pool, vms, vmis=[pool_builders.vmi(each, phase="Running") for each in vms])
    given = preview(snapshot)
    assert (len(given.leaving), given.held) == (2, "")
    assert given.disks == "kept (statePreservation Offline)"
    assert preview(replace(snapshot, owner=replace(pool, spec=replace(pool.spec, paused=True)))).leaving == ()
