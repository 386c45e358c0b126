"""The cost of each pure function that reads foreign input grows with its input, and not faster."""

from itertools import pairwise

import pytest

from tests.cost import cache_rows, member_rows, rows
from tests.cost.loops import functions_with_loops, reached_by
from tests.cost.meter import Meter, forget_results, seconds

ROWS = rows.ROWS
MODULES = (rows, member_rows, cache_rows)
"""These modules add their rows."""

MOST_GROWTH = 2.6
"""The largest ratio of two costs if the input is twice as large."""

MOST_INSTRUCTIONS = 3_000_000
CHEAP_S = 0.1
"""A call that needs less CPU time is cheap. The time of a call that is not may grow by `MOST_GROWTH_OF_TIME` if the
input is four times as large. A quadratic cost grows by 16.
"""

MOST_GROWTH_OF_TIME = 9
LIMIT_S = 3.0

UNMEASURED = {
    "controller/pool/spec/indexing.py": {"encode_disks"},
    # The input is a constant, or an object that only administrators write.
    "controller/kubevirt/normal_form.py": {"_read"},
    "controller/leaderelection/lease.py": {"change_body"},
    "controller/takeover/virt_controller.py": {
        *("active_loops", "_arguments_of", "is_stopped", "stop_patch", "take_over", "undo_takeover")
    },
    # One number, one error, one path, one object with a few conditions or annotations, or one key of an index.
    "informers/errors.py": {"requested_delay_s"},
    "informers/resource.py": {"Resource.path"},
    "controller/apimachinery/quantities.py": {"seconds"},
    "controller/replicas/kstatus.py": {"text_of_defect"},
    "controller/kubevirt/vmis.py": {"became_ready_at"},
    "controller/kubevirt/vms.py": {"became_ready_at", "is_start_requested"},
    "controller/kubevirt/problems.py": {"terminating_problem"},
    "controller/replicas/conditions.py": {"transitions", "without_failure"},
    "controller/replicaset/snapshot.py": {"by_required_label", "orphans_of"},
    "controller/pool/rollout/live.py": {"settled_at"},
    "controller/pool/status.py": {"_failure_notices"},
    "controller/events/correlator.py": {"SpamFilter.admit", "SpamFilter._evict"},
    # A manifest on the user's own machine.
    "controller/kubevirt/oddities.py": {"_partition", "_unknown", "_volumes"},
    # One loop over the members, the names or the revisions, in a rare state.
    "plugin/views/scaling.py": {"with_obstacles"},
    "controller/replicas/disruption_budget.py": {"wakes_of_budget"},
    "controller/replicas/notes.py": {"_notice"},
    "controller/replicaset/rosters.py": {"_Reader.names"},
    "controller/pool/members/revisions.py": {"ready_revisions"},
    "controller/pool/leaving/gates.py": {"_list"},
    "controller/pool/members/rosters.py": {"PoolReader.names"},
    "controller/pool/plan.py": {"_without_missing"},
    "controller/pool/rollout/brake.py": {"_consequences"},
    "controller/pool/rollout/migrations.py": {"_ended_at", "_first"},
    "controller/pool/scale.py": {"_wait_for_adoption"},
    "controller/pool/rollout/update.py": {"_blocking"},
    # Commands of the plugin, each of which runs once, on the machine of its user.
    "plugin/views/disks.py": {"lost_by_undo"},
    "plugin/views/edits.py": {"edited"},
    "plugin/views/history.py": {"find_revision", "previous_revision", "undo_edits", "owner_in_git", "staying_vmis"},
    "plugin/views/listing.py": {"sorted_by", "tree_answer"},
    "plugin/views/membership.py": {
        *("_volumes", "owner_of", "detach_edits", "adopt_edits", "adopt_vm_edits", "_disks"),
        "_without_notes",
    },
    "plugin/views/reasons.py": {"member_line", "is_well", "leader_of"},
    "plugin/views/rollout.py": {"behind_kubevirt"},
    "plugin/views/steering.py": {"restart_edits"},
    "plugin/views/tables.py": {"coloured_column"},
}
"""The pure functions with a loop that no row executes, by file, with the reason."""


@pytest.mark.parametrize("name", ROWS)
def test_twice_the_input_costs_at_most_twice_as_many_instructions(name: str) -> None:
    row = ROWS[name]
    calls = [row.make(row.n * times) for times in (1, 2, 4)]
    forget_results()
    costs = [Meter(MOST_INSTRUCTIONS).count(call) for call in calls]
    ratios = [more / less for less, more in pairwise(costs)]
    assert max(ratios) <= MOST_GROWTH, (costs, ratios)


@pytest.mark.parametrize("name", ROWS)
def test_four_times_the_input_costs_at_most_nine_times_the_time(name: str) -> None:
    row = ROWS[name]
    calls = row.make(row.far), row.make(row.far // 4)
    times = []
    for _ in range(3):
        times.append([cpu_time(call) for call in calls])
        most, least = (min(each) for each in zip(*times, strict=True))
        if most <= max(CHEAP_S, MOST_GROWTH_OF_TIME * least):
            return
    raise AssertionError(times)


def cpu_time(call: rows.Call) -> float:
    forget_results()
    return seconds(call, limit_s=LIMIT_S)


def test_a_row_executes_each_pure_function_with_a_loop() -> None:
    loops = set(functions_with_loops())
    unmeasured = {f"{file}:{name}" for file, names in UNMEASURED.items() for name in names}
    assert unmeasured - loops == set(), "these do not exist any more"
    reached = reached_by(row.make(row.n) for row in ROWS.values())
    assert loops - reached - unmeasured == set(), "add a row that executes them"


@pytest.mark.parametrize(
    "call_for",
    [
        lambda n: lambda: [each for one in range(n) for each in range(one)],
        lambda n: lambda: [list(range(n)).index(each) for each in range(n)],
    ],
    ids=["Python", "C"],
)
def test_a_quadratic_function_is_found(call_for: rows.Callable[[int], rows.Call]) -> None:
    less, more = (Meter(MOST_INSTRUCTIONS).count(call_for(n)) for n in (100, 200))
    small, large = (seconds(call_for(n), limit_s=LIMIT_S) for n in (1_000, 4_000))
    assert more / less > MOST_GROWTH or large / small > MOST_GROWTH_OF_TIME
