"""A few lives of the simulation: they are the same each time, and violate no sentence."""

import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import MOST_DISRUPTIVE, PROTECT
from controller.kubevirt.resources import MIGRATIONS, VMIS, VMS
from tests.simulation.coverage import ENOUGH, FIELDS, LONG, PAIRS, Coverage
from tests.simulation.examples import EXAMPLES, birth
from tests.simulation.judge import judge
from tests.simulation.judge.end import each_write_names_its_object
from tests.simulation.life import Life, run_life
from tests.simulation.live import LIVE_UPDATE, NO_METHODS
from tests.simulation.runs import batches, run_batch
from tests.simulation.story import BUSY_UNTIL_S, Act, Story, catalogue, make_story
from tests.simulation.world import BEGIN, Options

ONE_LIFE = (
    "from tests.simulation.life import run_life; from tests.simulation.story import make_story;"
    "from tests.simulation.world import configure_logs; configure_logs(); print(run_life(make_story({})).history)"
)
SMOKE = 50
"""The number of random lives in each test run."""


def life_of(*acts: Act) -> Life:
    return run_life(Story("made", Options(), acts))


@pytest.fixture(scope="module")
def calm() -> Life:
    return life_of(birth("set"))


@pytest.mark.parametrize("seed", [3, 44])
def test_a_seed_makes_the_same_life_in_each_process(seed: int) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", ONE_LIFE.format(seed)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.strip() == run_life(make_story(seed)).history


@pytest.mark.parametrize("seeds", list(batches(0, SMOKE)), ids=str)
def test_lives_violate_no_sentence(seeds: range) -> None:
    assert [f"seed {seed}: {each}" for seed, each in run_batch(seeds).found] == []


def test_a_long_run_names_what_it_has_not_covered() -> None:
    coverage = Coverage(lives=LONG, pairs=Counter(dict.fromkeys(PAIRS, ENOUGH)), fields=Counter(FIELDS))
    coverage.acts.update(catalogue())
    assert coverage.gaps() == []
    coverage.pairs[PAIRS[0]] -= 1
    del coverage.fields["pool.autohealing"], coverage.acts["evict"]
    assert [each.split(" ")[-1] for each in coverage.gaps()] == ["times", "changed", "occur"]
    coverage.lives -= 1
    assert coverage.gaps() == []


@pytest.mark.parametrize("kind", ["pool", "set"])
def test_a_calm_life_comes_to_rest_with_all_members_ready(kind: str) -> None:
    life = life_of(birth(kind), Act(60.0, "scale", (kind, "web", 5)), Act(120.0, "template", (kind, "web", "v2")))
    assert life.rested_at is not None
    assert judge(life) == []
    ready = [each for each in life.world.server.documents(VMIS).values() if each["status"]["phase"] == "Running"]
    assert len(ready) == 5


@pytest.mark.parametrize(("seed", "retried"), [("3", False), ("2", True)])
def test_a_pool_ends_live_changes_with_its_own_migrations_after_crashes_and_failures(seed: str, retried: bool) -> None:
    change = Act(15.0, "live_change", ("pool", "web", 2, "b"))
    crashes = [Act(at, "crash", ("pool", "web", 0, 2.0)) for at in (21.0, 36.0)]
    acts = (birth("pool", replicas=4), change, *crashes)
    life = run_life(Story(seed, Options(rollout=NO_METHODS, migrations=True), acts))
    assert judge(life) == []
    busy = [each for each in life.changes if each.at < BUSY_UNTIL_S]
    ended = [each.last for each in busy if each.resource is MIGRATIONS and each.after is None]
    found = [(each["spec"]["vmiName"], each["status"]["phase"]) for each in ended]
    if retried:
        failed = next(name for name, phase in found if phase == "Failed")
        assert (failed, "Succeeded") in found[found.index((failed, "Failed")) :]
    else:
        assert sorted(found) == [(f"web-{ordinal}", "Succeeded") for ordinal in range(4)]
    assert not [each for each in busy if each.resource is VMIS and each.after is None], "no VM is restarted"


def test_under_the_cap_live_one_vm_shows_that_a_change_needs_a_restart_also_after_crashes() -> None:
    """KubeVirt 1.9 plugs a volume in, but needs a restart for fewer sockets."""
    changes = [
        Act(at, "live_change", ("pool", "web", *given)) for at, given in ((15.0, (4, "b")), (90.0, (1, "b", ("more",))))
    ]
    crashes = [Act(at, "crash", ("pool", "web", each, 2.0)) for at in (91.0, 94.5, 98.0) for each in (0, 1)]
    acts = (birth("pool", annotations={MOST_DISRUPTIVE: "live"}), *changes, *crashes)
    life = run_life(Story("made", Options(rollout=LIVE_UPDATE, plugs=True), acts))
    assert judge(life) == []
    busy = [each for each in life.changes if 90 < each.at < BUSY_UNTIL_S and each.after is not None]
    sockets = [
        (each.key.name, each.last["spec"]["template"]["spec"]["domain"]["cpu"]["sockets"])
        for each in busy
        if each.resource is VMS and each.is_ours
    ]
    scout = sockets[0][0]
    assert sockets == [(scout, 1), (scout, 4)]
    assert not [
        each for each in life.changes if each.resource is VMIS and each.at < BUSY_UNTIL_S and each.after is None
    ]


@pytest.mark.parametrize("renamed", [False, True], ids=["disks", "disks with other names"])
def test_a_restored_pool_gets_its_vms_back_with_their_disks(renamed: bool) -> None:
    """A backup tool makes the VMs, and then the pool. A user makes the VMs its members, and changes the template."""
    restore = Act(60.0, "restore", ("pool", "web", False, renamed))
    life = life_of(birth("pool", disks=("d",)), restore, Act(140.0, "template", ("pool", "web", "v2")))
    assert judge(life) == []
    made = [each for each in life.changes if each.resource is VMS and each.before is None]
    assert [each.actor for each in made[3:]] == ["user"] * 3
    at_end = [
        each["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] for each in life.world.server.documents(VMS).values()
    ]
    assert sorted(at_end) == [f"{'restore-' * renamed}web-d-{ordinal}" for ordinal in range(3)]


def test_the_judge_sees_that_a_protected_vmi_is_deleted() -> None:
    life = life_of(birth("set"), Act(30.0, "protect_all", ("set", "web")))
    ours = next(each for each in life.changes if each.is_ours and each.resource is VMIS and each.after is not None)
    protected = next(
        each.after
        for each in life.changes
        if each.key == ours.key and each.after and PROTECT in (each.after["metadata"].get("annotations") or {})
    )
    deleted = {**protected, "metadata": {**protected["metadata"], "deletionTimestamp": BEGIN.isoformat()}}
    wrong = ours._replace(at=50.0, before=protected, after=None, last=deleted)
    at = next(number for number, each in enumerate(life.changes) if each.at > 50.0)
    life = replace(life, changes=[*life.changes[:at], wrong, *life.changes[at:]])
    assert "what_is_marked_stays" in {each.name for each in judge(life)}


UID_OF_OURS = {"metadata": {"uid": "1", "annotations": {"vmherd.dev/unready": "x"}}}


@pytest.mark.parametrize(
    ("verb", "body", "told"),
    [
        ("delete", {"preconditions": {}}, "names no UID"),
        ("delete", {"preconditions": {"uid": "1"}}, ""),
        ("update", {}, "replaces the whole object"),
        ("patch", [{"op": "remove", "path": "/metadata/finalizers"}], "tests no UID"),
        ("patch", [{"op": "test", "path": "/metadata/uid", "value": "1"}], ""),
        ("patch", {"metadata": {"annotations": {"vmherd.dev/unready": "x"}}}, "has no precondition"),
        ("patch", {**UID_OF_OURS, "spec": {"replicas": 1}}, "has no precondition"),
        ("patch", {"metadata": {"uid": "1", "labels": {"app": "web"}}}, "has no precondition"),
        ("patch", UID_OF_OURS, ""),
        ("patch", {"metadata": {"resourceVersion": "7"}, "spec": {}}, ""),
    ],
)
def test_the_judge_sees_that_a_write_has_no_precondition(calm: Life, verb: str, body: Any, told: str) -> None:
    ours = next(each for each in calm.asked if each.resource is VMIS)
    found = list(each_write_names_its_object(replace(calm, asked=[ours._replace(verb=verb, body=body)])))
    assert [told in each[2] if each else not told for each in found][-1]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_mended_fault_stays_mended(name: str) -> None:
    assert judge(run_life(EXAMPLES[name])) == []
