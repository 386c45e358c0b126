"""P3, P4, P8 and P9: scale-out and scale-in, and a new leader that continues a scale-in."""

import pytest

from controller.kubevirt.annotations import BUSY_UNTIL, DELETION_COST, PROTECT, REMOVE
from controller.kubevirt.resources import CONTROLLER_REVISIONS, DATA_VOLUMES, PVCS, VMIS, VMS
from controller.pool.members.select import allows, choose_for_removal
from controller.pool.plan import plan
from controller.pool.spec.policies import Selection, Sort
from controller.runtime.actions import Confirm, ConfirmFree, Create, Delete
from tests.fakes.virtual_time import run
from tests.pool_builders import LABELS, intent_of, pool, snapshot, vm, vm_spec, vmi, vms
from tests.pool_scenes import ASCENDING, OFFLINE, entry, healing_pool
from tests.pool_simulation import PoolSimulation

SPARE = {"selectors": {"labelSelector": {"matchLabels": {"tier": "spare"}}}, "sortPolicy": "AscendingOrder"}
PRESERVING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}, "statePreservation": "Offline"}}


def names(todo, kind):
    return [each.key.name for each in todo.actions if isinstance(each, kind) and each.resource is VMS]


LEAVING = {"deleting": True, "finalizers": ("x",)}

CREATED = {
    "the smallest free ordinals": (5, {1: {}, 4: {}}, ["web-0", "web-2", "web-3"]),
    "a deleted VM": (3, {0: {}, 2: {}}, ["web-1"]),
    "a terminating VM counts and keeps its name": (3, {0: {}, 1: {}, 2: LEAVING}, []),
    "as many as wanted": (300, {ordinal: {} for ordinal in range(300)}, []),
    "at most burst": (1000, {}, [f"web-{ordinal}" for ordinal in range(250)]),
}


@pytest.mark.parametrize(("replicas", "present", "expected"), CREATED.values(), ids=CREATED)
def test_p3_p4_missing_vms_are_created(replicas, present, expected):
    owner = pool(replicas=replicas)
    elsewhere = (vm("web-9999", finalizers=()), vm("other-0", finalizers=()))
    members = [vm(f"web-{ordinal}", owner=owner, **changes) for ordinal, changes in present.items()]
    todo = plan(snapshot(owner, (*members, *elsewhere)))
    assert [(type(each), each.key.name) for each in todo.actions] == [(Create, name) for name in expected]
    assert todo.held == ("750 more creates wait for the next pass" if replicas == 1000 else "")


def test_p3_p15_a_healed_vm_gets_its_ordinal_back_before_a_smaller_one_is_used():
    """Its kept disks wait for a VM with its name."""
    owner = healing_pool(replicas=4, healed={"2": entry(), "5": entry()})
    assert names(plan(snapshot(owner, vms(owner, 0, 2))), Create) == ["web-5", "web-1"]


def test_p4_a_pool_is_confirmed_before_new_vms_replace_a_vm_that_left_it():
    owner = pool(replicas=2)
    left = vm("web-0", finalizers=())
    first, *others = plan(snapshot(owner, (left, *vms(owner, 1)))).stages
    [confirm] = first.actions
    assert isinstance(confirm, Confirm)
    assert (confirm.key, confirm.uid, first.essential) == (owner.metadata.key, owner.metadata.uid, True)
    assert {type(action) for stage in others for action in stage.actions} == {Create}


@pytest.mark.parametrize(
    ("replicas", "name", "revisions", "labels", "created"),
    [
        (3, "web-1", (), LABELS, None),
        (3, "web-1", None, LABELS, ["web-0", "web-2", "web-3"]),
        (3, "web-1", (), {"app": "other"}, ["web-0", "web-2", "web-3"]),
        (1, "web-7", (), LABELS, None),
        (0, "web-7", (), LABELS, []),
    ],
    ids=["restored", "detached", "other labels", "restored, above the replicas", "none is lacking"],
)
def test_p3_a_pool_that_never_created_a_vm_creates_none_beside_vms_with_its_names(
    replicas, name, revisions, labels, created
):
    """Standbys and claims lead to numbers above the number of replicas. `created=None` stands for a pool that waits."""
    found = plan(snapshot(pool(replicas=replicas), (vm(name, finalizers=(), labels=labels),), revisions=revisions))
    assert [wait.stall for wait in found.waits] == ["NamesTaken"] * (created is None)
    assert names(found, Create) == (created or [])


@pytest.mark.parametrize("adopted", [1, 2, 3])
def test_p3_restored_vms_may_be_adopted_one_by_one(adopted: int):
    """With its first revision, the pool would take the other VMs for detached ones, and create VMs beside them."""
    owner = pool(replicas=3)
    vms = [vm(f"web-{n}", finalizers=(), owner=owner if n < adopted else None) for n in range(3)]
    found = plan(snapshot(owner, vms, revisions=()))
    created = [each.resource for each in found.actions if isinstance(each, Create)]
    expected = (["NamesTaken"], []) if adopted < 3 else ([], [CONTROLLER_REVISIONS])
    assert ([wait.stall for wait in found.waits], created) == expected


def test_p3_a_new_pool_looks_on_the_server_for_vms_with_its_names_before_its_first_revision():
    first, *others = plan(snapshot(pool(replicas=2), revisions=())).stages
    [confirm] = first.actions
    assert isinstance(confirm, ConfirmFree)
    assert (confirm.key.name, str(confirm.selector), first.essential) == ("web", "app=web", True)
    assert [each.resource for each in others[0].actions] == [CONTROLLER_REVISIONS]


def test_p3_a_create_names_the_disks_that_an_earlier_vm_may_have_left():
    owner = pool(replicas=2, spec=vm_spec(disks=["data", "logs"]))
    creates = [each for each in plan(snapshot(owner)).actions if isinstance(each, Create) and each.resource is VMS]
    assert [[(resource, key.name) for resource, key in each.reusable_disks] for each in creates] == [
        [(DATA_VOLUMES, "data-0"), (PVCS, "data-0"), (DATA_VOLUMES, "logs-0"), (PVCS, "logs-0")],
        [(DATA_VOLUMES, "data-1"), (PVCS, "data-1"), (DATA_VOLUMES, "logs-1"), (PVCS, "logs-1")],
    ]


FIRST_FOUR = [f"web-{n}" for n in range(4)]
DELETED = {
    "terminating VMs count": (2, {0: {}, 1: {}, 2: {}, 3: LEAVING, 4: LEAVING}, ["web-0"], ""),
    "at most burst": (0, {n: {} for n in range(10)}, FIRST_FOUR, "6 more deletes wait for the next pass"),
    # The pool was scaled from 10 to 5. Five VMs are still terminating when the pool is scaled again.
    **{f"to {wanted}": (wanted, {n: LEAVING if n > 3 else {} for n in range(9)}, [], "") for wanted in (4, 5, 9)},
}


@pytest.mark.parametrize(("replicas", "present", "expected", "held"), DELETED.values(), ids=DELETED)
def test_p8_surplus_vms_are_deleted(replicas, present, expected, held):
    owner = pool(replicas=replicas, scaleInStrategy=ASCENDING)
    members = [vm(f"web-{ordinal}", owner=owner, **changes) for ordinal, changes in present.items()]
    todo = plan(snapshot(owner, members, burst=4))
    assert [each.key.name for each in todo.actions] == names(todo, Delete) == expected
    assert todo.held == held


def test_p8_if_the_selectors_match_too_few_vms_an_event_says_how_many_stay():
    owner = pool(replicas=1, generation=7, scaleInStrategy={"proactive": {"selectionPolicy": SPARE}})
    todo = plan(snapshot(owner, (*vms(owner, 0, 1), *vms(owner, 2, spec=vm_spec(labels={"tier": "spare"})))))
    assert names(todo, Delete) == ["web-2"]
    [notice] = todo.notices
    assert (notice.reason, notice.warning, notice.once) == ("ScaleInIncomplete", True, "kept 7 1")
    message = "1 surplus virtual machines stay, 1 are wanted: 2 do not match the selectors of scaleInStrategy"
    assert notice.message == message
    assert todo.held == "1 surplus virtual machine may not be deleted"


@pytest.mark.parametrize("strategy", ["opportunistic", "unmanaged"])
def test_p9_a_pool_that_may_not_delete_vms_waits_for_its_users(strategy):
    owner = pool(replicas=1, scaleInStrategy={strategy: {}})
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2)))
    assert todo.actions == ()
    assert todo.held == f"2 surplus virtual machines stay until a user deletes VMs: scale-in is {strategy}"


def test_p10_a_vm_without_the_finalizer_is_deleted_if_disks_are_not_preserved_or_its_name_is_foreign():
    owner = pool(replicas=0, scaleInStrategy=ASCENDING)
    assert names(plan(snapshot(owner, vms(owner, 0, finalizers=()))), Delete) == ["web-0"]
    preserving = pool(replicas=0, scaleInStrategy=PRESERVING)
    assert names(plan(snapshot(preserving, (vm("mine", owner=preserving, finalizers=()),))), Delete) == ["mine"]


OWNER = pool()


def order(machines, *, sort=Sort.UNSTATED, owner=OWNER):
    seen = snapshot(owner, machines)
    candidates = choose_for_removal(seen, Selection(sort), seen.members, most=len(seen.members))
    return [each.metadata.name for each in candidates.ranked]


def selection_of(**selectors):
    block = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
    return intent_of(pool(scaleInStrategy=block)).scale_in.selection


BY_ORDINAL = ["mine", "web-0", "web-9", "web-10", "web-100"]
NUMBERS = {"web-10": {}, "web-9": {}, "web-100": {}, "web-0": {}, "mine": {}}
AGES = {"web-0": {"age_s": 100}, "web-1": {"age_s": 300}, "web-2": {"age_s": 200}, "web-3": {"age_s": 200}}
MARKS = {
    "web-0": {},
    "web-1": {"annotations": {DELETION_COST: "-1"}},
    "web-2": {"annotations": {REMOVE: "true", DELETION_COST: "9"}},
    "web-3": {"annotations": {DELETION_COST: "5"}},
    "web-4": {"annotations": {REMOVE: "yes"}},
    "web-5": {"annotations": {PROTECT: "true", REMOVE: "true"}},
    "web-6": {"annotations": {PROTECT: "false", DELETION_COST: "cheap"}},
}

ORDERS = {
    "ascending, as numbers, and one without an ordinal": (Sort.ASCENDING, NUMBERS, BY_ORDINAL),
    "descending": (Sort.DESCENDING, NUMBERS, BY_ORDINAL[::-1]),
    "newest, and then by ordinal": (Sort.NEWEST, AGES, ["web-0", "web-3", "web-2", "web-1"]),
    "oldest, and then by ordinal": (Sort.OLDEST, AGES, ["web-1", "web-2", "web-3", "web-0"]),
    "a mark, then the cost, then the policy": (Sort.ASCENDING, MARKS, [f"web-{n}" for n in (2, 1, 0, 4, 6, 3)]),
}


@pytest.mark.parametrize(("sort", "machines", "expected"), ORDERS.values(), ids=ORDERS)
def test_the_order_of_deletion(sort, machines, expected):
    found = [vm(name, owner=OWNER, **changes) for name, changes in machines.items()]
    assert order(found, sort=sort) == expected


def test_p8_without_a_policy_readiness_outweighs_the_cost_and_with_a_policy_only_the_cost_counts():
    cheap, dear = vms(OWNER, 0, annotations={DELETION_COST: "-5"}), {"annotations": {DELETION_COST: "9"}}
    machines = (*cheap, *vms(OWNER, 1), *vms(OWNER, 2, ready=False, **dear))
    assert order(machines) == ["web-2", "web-0", "web-1"]
    assert order(machines, sort=Sort.ASCENDING) == ["web-0", "web-1", "web-2"]


def test_p8_without_a_policy_equal_vms_on_the_most_crowded_node_leave_first():
    """A protected VM counts on its node. A VM without a node comes after those with one."""
    nodes = ["a", "b", "b", "c", "c", "c", "d", "d"]
    dear = vms(OWNER, 7, annotations={DELETION_COST: "9"})
    machines = [*vms(OWNER, *range(6)), *vms(OWNER, 6, annotations={PROTECT: "true"}), *dear, *vms(OWNER, 8)]
    running = [vmi(each, node=node) for each, node in zip(machines, nodes, strict=False)]
    seen = snapshot(OWNER, machines, vmis=running)
    ranked = choose_for_removal(seen, Selection(), seen.members, most=len(seen.members)).ranked
    node_of = {each.metadata.name: each.status.node_name for each in running}
    left = [node_of.get(each.metadata.name, "") for each in ranked]
    assert left[0] == "c"
    assert sorted(left[1:3]) == ["b", "c"], "c and b have two each"
    assert sorted(left[3:6]) == ["a", "b", "c"]
    assert left[6:] == ["", "d"], "the cost outweighs the node"
    of_oldest = choose_for_removal(seen, Selection(Sort.ASCENDING), seen.members, most=3).ranked
    assert [each.metadata.name for each in of_oldest] == ["web-0", "web-1", "web-2"]


def test_the_random_order_is_the_same_for_a_retry_and_another_for_a_new_generation():
    machines = vms(OWNER, *range(30))
    assert order(machines, sort=Sort.RANDOM) == order(reversed(machines), sort=Sort.RANDOM)
    changed = pool(generation=2)
    assert order(vms(changed, *range(30)), sort=Sort.RANDOM, owner=changed) != order(machines, sort=Sort.RANDOM)


ZONE = [{"key": "zone", "operator": "In", "values": ["a", "b"]}]
NUMBERED = [{"key": "rank", "operator": "Gt", "values": ["5"]}]
SPARE_LABELS = {"matchLabels": {"tier": "spare"}}
BOTH = {"labelSelector": SPARE_LABELS, "nodeSelectorRequirementMatcher": ZONE}

ALLOWED = {
    "no selector": ({}, {}, True),
    "an empty selector": ({"labelSelector": {}}, {}, True),
    "labels of the VMI template": ({"labelSelector": SPARE_LABELS}, {"labels": {"tier": "spare"}}, True),
    "no VMI template": ({"labelSelector": SPARE_LABELS}, None, False),
    "other labels": ({"labelSelector": SPARE_LABELS}, {"labels": {"tier": "main"}}, False),
    "a node selector": ({"nodeSelectorRequirementMatcher": ZONE}, {"node_selector": {"zone": "a"}}, True),
    "another zone": ({"nodeSelectorRequirementMatcher": ZONE}, {"node_selector": {"zone": "c"}}, False),
    "no node selector": ({"nodeSelectorRequirementMatcher": ZONE}, {}, False),
    "a greater number": ({"nodeSelectorRequirementMatcher": NUMBERED}, {"node_selector": {"rank": "10"}}, True),
    "no number": ({"nodeSelectorRequirementMatcher": NUMBERED}, {"node_selector": {"rank": "high"}}, False),
    "not greater": ({"nodeSelectorRequirementMatcher": NUMBERED}, {"node_selector": {"rank": "5"}}, False),
    "both given, one matches": (BOTH, {"labels": {"tier": "spare"}}, False),
    "both given, both match": (BOTH, {"labels": {"tier": "spare"}, "node_selector": {"zone": "b"}}, True),
}


@pytest.mark.parametrize(("selectors", "spec", "allowed"), ALLOWED.values(), ids=ALLOWED)
def test_which_vms_the_selectors_allow(selectors, spec, allowed):
    """The selectors are compared with the VMI template, and not with the VM."""
    machine = vm(labels={"tier": "spare"}, spec={} if spec is None else vm_spec(**spec))
    assert allows(selection_of(**selectors), machine) is allowed


def with_a_late_cache(**fields):
    """A pool at rest. From then on, its cache of VMs receives no event by itself."""
    simulation = PoolSimulation(pool(**fields))
    simulation.come_to_rest()
    simulation.server.on_write = lambda request, before: None
    return simulation


def reconcile(simulation, times=3):
    """Reconcile so often. Only the cache of pools is fresh."""
    for _ in range(times):
        simulation.caches[0].catch_up()
        run(simulation.process.reconcile(simulation.key("web")))


UNREADY = {"printableStatus": "Starting", "conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize("unready", ["web-0", "web-1", "web-2"])
@pytest.mark.parametrize("strategy", [None, OFFLINE])
def test_p8_a_new_leader_with_a_lagging_cache_chooses_no_second_victim(unready, strategy):
    """The first leader deletes a VM before it sees that another VM is not ready. The second leader sees that, but not
    the deletion, so it would choose the unready VM.
    """
    simulation = with_a_late_cache(replicas=3, scaleInStrategy=strategy)
    _, vms, vmis, _ = simulation.caches
    simulation.change(replicas=2)
    simulation.server.change(VMS, simulation.key(unready), {"status": UNREADY})
    run(simulation.server.delete(VMS, simulation.key("web-1" if unready == "web-2" else "web-2")))
    assert len(simulation.running()) == 2

    simulation.restart()
    vms.catch_up(events=1)
    for _ in range(3):
        reconcile(simulation, times=1)
        assert len(simulation.running()) == 2
    vms.catch_up()
    vmis.catch_up()
    simulation.come_to_rest()
    assert len(simulation.running()) == 2


def test_p8_the_cache_is_compared_once_for_each_scale_in():
    simulation = PoolSimulation(pool(replicas=6))
    simulation.come_to_rest()
    simulation.restart()
    asked = len(simulation.server.requests)
    for replicas in (5, 3, 0):
        simulation.change(replicas=replicas)
        simulation.come_to_rest()
    lists = [each.resource for each in simulation.server.requests[asked:] if each.verb == "list"]
    assert (lists.count(VMS), lists.count(VMIS), len(lists)) == (3, 3, 6)
    assert simulation.members() == []


LATE = "2100-01-01T00:00Z"
BEFORE = {
    "a mark": lambda server, key: server.change(VMS, key, {"metadata": {"annotations": {REMOVE: "true"}}}),
    "work": lambda server, key: server.change(VMIS, key, {"metadata": {"annotations": {BUSY_UNTIL: LATE}}}),
    "a deletion": lambda server, key: run(server.delete(VMS, key)),
}


@pytest.mark.parametrize("change", BEFORE)
@pytest.mark.parametrize("victim", ["web-0", "web-1", "web-2"])
def test_p8_what_a_user_did_to_a_vm_before_a_scale_in_counts_even_if_its_cache_is_late(victim, change):
    simulation = with_a_late_cache(replicas=3)
    asked = len(simulation.server.requests)
    BEFORE[change](simulation.server, simulation.key(victim))
    simulation.change(replicas=2)
    reconcile(simulation)
    simulation.come_to_rest()
    lists = [each.resource for each in simulation.server.requests[asked:] if each.verb == "list"]
    assert sorted(each.plural for each in lists) == [VMIS.plural, VMS.plural], "one comparison for each change"
    left = [each for each in ("web-0", "web-1", "web-2") if each != victim]
    assert simulation.members() == left if change != "work" else victim in simulation.members()


def test_p14_a_vm_that_becomes_busy_just_before_a_template_would_stop_it_keeps_running():
    simulation = with_a_late_cache(replicas=2)
    BEFORE["work"](simulation.server, simulation.key("web-1"))
    simulation.change_template(vm_spec(run_strategy="Halted"))
    reconcile(simulation)
    simulation.run_passes(9)
    assert [each["spec"]["runStrategy"] for each in simulation.vms.values()] == ["Halted", "Always"]


def test_p6_a_vm_that_is_protected_just_before_its_pool_is_deleted_stays():
    simulation = with_a_late_cache(replicas=3)
    simulation.server.change(VMS, simulation.key("web-1"), {"metadata": {"annotations": {PROTECT: "true"}}})
    simulation.delete_pool()
    reconcile(simulation)
    simulation.run_passes(9)
    assert list(simulation.vms) == ["web-1"]
