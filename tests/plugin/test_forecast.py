"""`kubectl vmherd plan -f`: what a new manifest would do to each VM, before anything is written."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from controller.kinds import POOLS
from controller.kubevirt.annotations import (
    BUSY_UNTIL,
    MOST_DISRUPTIVE,
    PARTITION,
    PROTECT,
    ROLLING_UPDATE,
    STANDBY,
    STANDBY_MODE,
)
from controller.kubevirt.live_updates import NO_METHOD, RolloutSettings
from controller.kubevirt.resources import VMS
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.plan import plan
from controller.runtime.actions import Delete, ThreeWayMerge
from informers.meta import ObjectKey
from plugin.commands.plan import LAST_APPLIED, apply_edits, read_manifests
from plugin.flags import Flags
from plugin.reading import Reader
from plugin.subjects import Subject
from plugin.views.edits import edited
from plugin.views.forecast import forecast_lines, forecast_of
from plugin.views.scaling import with_owner
from plugin.views.upcoming import upcoming_of
from tests import builders, pool_builders
from tests.builders import seconds_ago
from tests.fakes.rules import wire
from tests.plugin import states
from tests.plugin.cluster import POOL, SET, Cluster, Session, Shell
from tests.strategies import template_hash_of


def manifest(cluster: Cluster, resource: Any, name: str, **spec: Any) -> dict[str, Any]:
    """What `kubectl get -o yaml` shows, with another spec."""
    document = json.loads(json.dumps(cluster.document(resource, name)))
    for field in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        document["metadata"].pop(field, None)
    document.pop("status", None)
    version = f"{resource.group}/{resource.version}"
    return {**document, "apiVersion": version, "kind": resource.kind, "spec": {**document["spec"], **spec}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new.yaml"


def write(file: Path, *documents: Any) -> str:
    file.write_text(yaml.safe_dump_all(documents))
    return f"plan -f {file}"


def test_the_forecast_names_each_vm_its_turn_and_its_limits_and_writes_nothing(
    cluster: Cluster, shell: Shell, file: Path, terminal: None
):
    states.pool_at_rest(cluster, 3, maxUnavailable=1)
    given = manifest(cluster, POOL, "web")
    given["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7
    line = write(file, given)
    lines = shell.output(line).splitlines()
    assert lines[0] == "virtualmachinepool.pool.kubevirt.io/web:"
    assert lines[1].split() == ["NAME", "TURN", "EFFECT", "WHY"]
    rows = [each.split() for each in lines[2:5]]
    assert [(row[1], row[2]) for row in rows] == [("1", "restart"), ("2", "restart"), ("3", "restart")]
    assert lines[5] == "pace: at most 1 of 3 unavailable at a time, and at most 1 in a live change"
    assert max(map(len, lines)) <= 80
    assert [params.get("dryRun") for _, _, params, _ in cluster.writes] == ["All"]
    cluster.is_read_only = True
    code, out, err = shell(line)
    assert (code, out.splitlines()) == (0, lines)
    assert err == 'Note: the API server has not checked the manifest: User "jane" cannot patch resource "pools"\n'


def test_an_unchanged_manifest_does_nothing_and_a_smaller_one_names_the_vms_that_leave(
    cluster: Cluster, shell: Shell, file: Path
):
    states.pool_at_rest(cluster, 2)
    answer = json.loads(shell.output(write(file, manifest(cluster, POOL, "web")) + " -o json"))
    assert [each["effect"] for each in answer["members"]] == ["nothing", "nothing"]
    assert (answer["exists"], answer.get("held"), cluster.writes) == (True, None, [])
    answer = json.loads(shell.output(write(file, manifest(cluster, POOL, "web", replicas=1)) + " -o json"))
    assert sorted(each["effect"] for each in answer["members"]) == ["leaves", "nothing"]
    answer = json.loads(shell.output(write(file, manifest(cluster, POOL, "web", replicas=4)) + " -o json"))
    assert answer["scale"]["creating"] == ["web-2", "web-3"]


def test_a_manifest_of_a_missing_object_says_how_many_vms_it_creates(cluster: Cluster, shell: Shell, file: Path):
    states.pool_at_rest(cluster, 2)
    given = manifest(cluster, POOL, "web", replicas=5)
    given["metadata"]["name"] = "new"
    name = "virtualmachinepool.pool.kubevirt.io/new"
    text = f"{name} does not exist in the namespace default: it would be created with 5 VMs\n"
    assert shell.output(write(file, given)) == text


WRONG: dict[str, tuple[Any, str]] = {
    "no mapping": ((["a"],), "is no manifest of a set or pool: it has no fields"),
    "another group": (
        ({"apiVersion": "pool.example.org/v1", "kind": "VirtualMachinePool", "metadata": {"name": "a"}, "spec": {}},),
        "has the kind VirtualMachinePool of pool.example.org/v1: a plan needs a VirtualMachineInstanceReplicaSet or a "
        "VirtualMachinePool",
    ),
    "no spec": (
        ({"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": {"name": "a"}},),
        "has no spec",
    ),
    "no name": (
        ({"apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "metadata": {}, "spec": {}},),
        "has no metadata.name",
    ),
}


@pytest.mark.parametrize(("documents", "problem"), WRONG.values(), ids=WRONG)
def test_a_wrong_manifest_is_one_line(shell: Shell, file: Path, documents: Any, problem: str):
    assert shell.error(write(file, *documents)) == f"error: {file} {problem}"


def test_files_folders_lists_and_all_documents_are_planned_and_others_are_named(
    cluster: Cluster, shell: Shell, file: Path, tmp_path: Path
):
    states.pool_at_rest(cluster, 2)
    states.replica_set(cluster, updated=2)
    pool, group = manifest(cluster, POOL, "web"), manifest(cluster, SET, "testreplicaset", replicas=3)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    none = f"error: a plan needs a VirtualMachineInstanceReplicaSet or VirtualMachinePool: Service web in {file}"
    assert shell.error(write(file, service)) == none
    code, out, err = shell(write(file, service, {"spec": {}}, pool, {**pool, "spec": None}, group))
    assert [line.partition("/")[2] for line in out.splitlines() if line.endswith(":")] == ["web:", "testreplicaset:"]
    assert "would create:" in out
    note = f"Note: a plan is for sets and pools, so it leaves out Service web in {file}; <none> <none> in {file}"
    assert (code, err.splitlines()) == (1, [note, f"error: {file} has no spec"])
    (tmp_path / "notes.txt").write_text("no manifest")
    (tmp_path / "other.json").write_text(json.dumps({"kind": "List", "items": [group]}))
    write(file, pool)
    for flags in (f"-f {tmp_path}", f"-f {file} -f {tmp_path}/other.json"):
        answers = json.loads(shell.output(f"plan {flags} -o json"))
        assert [each["name"].partition("/")[2] for each in answers] == ["web", "testreplicaset"]


def test_a_manifest_that_the_server_accepts_in_silence_has_a_warning(cluster: Cluster, shell: Shell, file: Path):
    states.pool_at_rest(cluster, 2)
    given = manifest(cluster, POOL, "web")
    given["spec"]["virtualMachineTemplate"]["spec"]["template"]["spec"]["domain"]["memroy"] = {"guest": "1Gi"}
    code, _, err = shell(write(file, given))
    assert (code, len(err.splitlines())) == (0, 1)
    assert err.startswith(
        "Warning: spec.virtualMachineTemplate.spec.template.spec.domain.memroy is no field of KubeVirt"
    )
    data = json.loads(shell(f"plan -f {file} -o json")[1])
    assert [f"Warning: {each}" for each in data["warnings"]] == err.splitlines()


def test_p23_a_plan_warns_of_annotations_with_wrong_values(cluster: Cluster, shell: Shell, file: Path):
    wrong = (
        'annotation vmherd.dev/standby is "x": it must be a number from 1, or "1%" to "100%", so there is no standby VM'
    )
    cluster.put(POOL, pool_builders.pool(replicas=0))
    for name, exists in (("web", True), ("new", False)):
        metadata = {"name": name, "annotations": {STANDBY: "x"}}
        code, out, err = shell(write(file, {**manifest(cluster, POOL, "web"), "metadata": metadata}) + " -o json")
        answer = json.loads(out)
        assert (code, answer["exists"], answer["warnings"], err) == (0, exists, [wrong], f"Warning: {wrong}\n")


def test_p32_a_new_pool_says_how_many_standbys_it_has_and_why_not_paused(cluster: Cluster, shell: Shell, file: Path):
    cluster.put(POOL, pool_builders.pool(replicas=20, annotations={STANDBY: "10%"}))
    metadata = {"name": "new", "annotations": {STANDBY: "10%", STANDBY_MODE: "paused"}}
    line = write(file, {**manifest(cluster, POOL, "web"), "metadata": metadata})
    code, out, err = shell(line)
    assert (code, out.endswith("it would be created with 20 VMs, and 2 on standby\n")) == (0, True)
    assert err.startswith("Warning: annotation vmherd.dev/standby-mode counts as stopped: ")
    cluster.put(VMS, pool_builders.vm("new-7", finalizers=()))
    code, out, _ = shell(line)
    assert "it would be created with 20 VMs, and 2 on standby, and wait: new-7 has a name of this pool" in out


def test_a_file_that_cannot_be_read_or_fits_no_flag_is_one_line(cluster: Cluster, shell: Shell, file: Path):
    assert shell.error(f"plan -f {file}") == f"error: {file} cannot be read: No such file or directory"
    file.write_text("a: [")
    assert shell.error(f"plan -f {file}").startswith(f"error: {file} cannot be read: while parsing")
    states.pool_at_rest(cluster)
    line = write(file, manifest(cluster, POOL, "web"))
    assert shell.error(f"{line} -n shop") == f"error: {file} has the namespace default, and the flag -n shop"
    assert "name no object" in shell.error(f"{line} vmpool/web", code=2)
    assert "name an object" in shell.error("plan", code=2)
    wrong = manifest(cluster, POOL, "web", maxUnavailable="none")
    assert shell.error(write(file, wrong)).startswith("error: the new spec is invalid: spec.maxUnavailable is")
    wrong["spec"]["replicas"] = True
    wrong["metadata"]["name"] = "new"
    assert "error: the new spec is invalid: Expected `int | null`" in shell.error(write(file, wrong))


@pytest.mark.parametrize("text", [f"a: {'[' * 3000}", "spec: {~: 1}", 'spec: "\\ud800"', f"spec: 0x{'f' * 6000}"])
def test_yaml_that_is_no_json_is_one_line(shell: Shell, file: Path, text: str):
    file.write_text(text)
    assert shell.error(f"plan -f {file}").startswith(f"error: {file} cannot be read: ")


def test_a_time_in_a_manifest_is_a_text(file: Path):
    spec = {"2026-01-01": "2026-13-45", "until": "2026-01-01T00:00:00.0Z"}
    file.write_text("{kind: VirtualMachinePool, spec: {2026-01-01: 2026-13-45, until: 2026-01-01T00:00:00.0Z}}")
    assert read_manifests([str(file)]) == [(str(file), {"kind": "VirtualMachinePool", "spec": spec})]


def test_a_manifest_from_stdin(cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch):
    states.replica_set(cluster, updated=2)
    given = manifest(cluster, SET, "testreplicaset")
    given["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 7
    monkeypatch.setattr(sys, "stdin", io.StringIO(yaml.safe_dump(given)))
    lines = shell.output("plan -f -").splitlines()
    assert [each.split()[1:] for each in lines[2:4]] == [["1", "replace"], ["2", "replace"]]
    assert lines[4] == "pace: at most 1 of 2 not ready and 0 additional at a time"


def test_a_manifest_is_applied_as_kubectl_applies_it():
    last = {"spec": {"a": 1, "gone": 1, "map": {"x": 1, "y": 1}}}
    present = {
        "metadata": {"annotations": {LAST_APPLIED: json.dumps(last), "other": "writer"}},
        "spec": {"a": 1, "gone": 1, "map": {"x": 1, "y": 1, "z": 1}, "replicas": 3},
    }
    new = {"metadata": {"annotations": {"mine": "1"}}, "spec": {"a": 2, "map": {"x": 1}, "list": [1]}}
    after = edited(present, apply_edits(present, new))
    assert after["spec"] == {"a": 2, "map": {"x": 1, "z": 1}, "replicas": 3, "list": [1]}
    assert after["metadata"]["annotations"] == {LAST_APPLIED: json.dumps(last), "other": "writer", "mine": "1"}


NEW = pool_builders.vm_spec(image="v2")
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    # The annotations of the pool, the changes of web-1, the effect on web-1, and the reason why it is held.
    "a restart": ({}, {}, "restart", ""),
    "paused": ({"paused": True}, {}, "restart", ""),
    "below the partition": ({"annotations": {PARTITION: "2"}}, {}, "restart", f"{PARTITION} is 2"),
    "unmanaged": ({"updateStrategy": {"unmanaged": {}}}, {}, "no restart", "unmanaged leaves it out"),
    "the cap": ({"annotations": {MOST_DISRUPTIVE: "live"}}, {}, "restart", f"{MOST_DISRUPTIVE}=live forbids it"),
    "busy": ({}, {"annotations": {"vmherd.dev/busy-until": "2999-01-01T00:00:00Z"}}, "restart", "busy until"),
    "opportunistic": ({"updateStrategy": {"opportunistic": {}}}, {}, "no restart", ""),
}


@pytest.mark.parametrize(("pool", "vm", "effect", "held"), CASES.values(), ids=CASES)
def test_what_happens_to_a_vm_and_what_holds_it(pool: dict[str, Any], vm: dict[str, Any], effect: str, held: str):
    old = pool_builders.pool(replicas=2, generation=1)
    new = pool_builders.pool(replicas=2, generation=1, spec=NEW, **pool)
    vms = [pool_builders.vm("web-0", owner=old), pool_builders.vm("web-1", owner=old, **vm)]
    snapshot = pool_builders.snapshot(old, vms)
    forecast = forecast_of(with_owner(snapshot, new))
    [fate] = [each for each in forecast.members if each.name == "web-1"]
    assert fate.effect == effect
    assert held in fate.held
    assert bool(held) == (fate.turn == 0)
    assert ("paused" in forecast.held) == ("paused" in pool)


def test_new_disks_are_named_and_the_plan_of_the_controller_begins_with_the_first_turn():
    with_disks = {"replicas": 3, "maxUnavailable": 1}
    old = pool_builders.pool(generation=1, spec=pool_builders.vm_spec(disks=("data",)), **with_disks)
    spec = pool_builders.vm_spec(disks=("data",), storage_class="slow")
    new = pool_builders.pool(generation=1, spec=spec, **with_disks)
    vms = pool_builders.vms(old, 0, 1, 2)
    snapshot = with_owner(pool_builders.snapshot(old, vms), new)
    members = forecast_of(snapshot).members
    assert [each.effect for each in members] == ["recreate"] * 3
    assert [each.lost_disks for each in members] == [(each.name.replace("web", "data"),) for each in members]
    deletes = [each.key.name for each in plan(snapshot).actions if isinstance(each, Delete)]
    assert deletes == [members[0].name]


def test_a_growing_disk_is_named():
    old = pool_builders.pool(replicas=1, generation=1, spec=pool_builders.vm_spec(disks=("data",), size="1Gi"))
    new = pool_builders.pool(replicas=1, generation=1, spec=pool_builders.vm_spec(disks=("data",), size="2Gi"))
    vm = pool_builders.vm("web-0", owner=old)
    snapshot = with_owner(pool_builders.snapshot(old, [vm]), new)
    [fate] = forecast_of(snapshot).members
    assert (fate.effect, fate.grown_disks) == ("no restart", {"data-0": "2Gi"})


@pytest.mark.parametrize("migrates", [True, False])
def test_a_restart_because_nothing_starts_a_migration_says_so(migrates: bool):
    def with_sockets(sockets: int) -> Any:
        spec = pool_builders.vm_spec()
        spec["template"]["spec"]["domain"]["cpu"] = {"sockets": sockets}
        return pool_builders.pool(replicas=1, generation=1, spec=spec)

    old, new = with_sockets(1), with_sockets(2)
    machine = pool_builders.vm("web-0", owner=old)
    seen = pool_builders.snapshot(old, [machine], vmis=[pool_builders.vmi(machine)])
    live = LiveUpdates({}, RolloutSettings(changes=True, migrates=migrates))
    forecast = forecast_of(replace(with_owner(seen, new), live=live))
    [fate] = forecast.members
    assert fate.effect == ("live" if migrates else "restart")
    assert fate.because == ("" if migrates else NO_METHOD)
    assert migrates or NO_METHOD in forecast_lines(forecast)[1]


def test_the_turns_are_those_of_the_controller():
    descending = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    old = pool_builders.pool(replicas=4, generation=1, maxUnavailable=2, updateStrategy=descending)
    new = pool_builders.pool(replicas=4, generation=1, maxUnavailable=2, updateStrategy=descending, spec=NEW)
    vms = pool_builders.vms(old, 0, 1, 2, 3)
    snapshot = with_owner(pool_builders.snapshot(old, vms), new)
    turns = [each.name for each in forecast_of(snapshot).members]
    assert turns == ["web-3", "web-2", "web-1", "web-0"]
    updated = [each.key.name for each in plan(snapshot).actions if isinstance(each, ThreeWayMerge)]
    assert updated == turns[:2]


def test_a_vmi_of_a_set_is_replaced_or_says_why_it_stays():
    annotations = {ROLLING_UPDATE: "maxSurge=1,maxUnavailable=0"}
    owner = builders.replicaset(replicas=2, annotations=annotations)
    old = {**builders.LABELS, "vmherd.dev/template-hash": "older"}
    vmis = [
        builders.vmi("a", owner=owner, labels=old),
        builders.vmi("b", owner=owner, labels=old, annotations={PROTECT: "true"}),
    ]
    snapshot = builders.snapshot(owner, vmis)
    forecast = forecast_of(snapshot)
    assert [(each.name, each.effect, each.turn) for each in forecast.members] == [
        ("a", "replace", 1),
        ("b", "replace", 0),
    ]
    assert PROTECT in forecast.members[1].held
    assert forecast.pace == "at most 0 of 2 not ready and 1 additional at a time"
    plain = forecast_of(replace(snapshot, owner=builders.replicaset(replicas=2)))
    assert all(ROLLING_UPDATE in each.held for each in plain.members)


def test_the_vmi_of_a_surge_does_not_leave_while_the_update_goes_on():
    owner = builders.replicaset(replicas=1, annotations={ROLLING_UPDATE: "maxSurge=1,maxUnavailable=0"})
    old = {**builders.LABELS, "vmherd.dev/template-hash": "older"}
    new = {**builders.LABELS, "vmherd.dev/template-hash": template_hash_of(owner)}
    vmis = [builders.vmi("a", owner=owner, labels=old), builders.vmi("b", owner=owner, labels=new, ready=False)]
    forecast = forecast_of(builders.snapshot(owner, vmis))
    assert [(each.name, each.effect) for each in forecast.members] == [("a", "replace"), ("b", "nothing")]
    assert forecast.scale.leaving == ()


async def snapshot_of_web(cluster: Cluster) -> Any:
    reader = Reader(Session(cluster, Flags()), "default")
    return await reader.snapshot(await reader.target(Subject(POOLS, POOLS.group, "web")))


@pytest.mark.parametrize("busy_s", [300, 1200])
async def test_nothing_is_foretold_after_a_write(cluster: Cluster, busy_s: int):
    """The healing at 240 s replaces the VM that would be late at 540 s. The end of a busy mark begins an update."""
    states.POOLS["rollout"](cluster)
    assert upcoming_of(await snapshot_of_web(cluster)) == ()
    change = {"spec": {"autohealing": None, "maxUnavailable": 2}}
    cluster.server.change(POOL, ObjectKey("default", "web"), change)
    for name in ("web-2", "web-3"):
        mark = {"metadata": {"annotations": {BUSY_UNTIL: wire(seconds_ago(-busy_s))}}}
        cluster.server.change(VMS, ObjectKey("default", name), mark)
    *_, last = upcoming_of(await snapshot_of_web(cluster))
    assert (last.is_write, last.seconds) == (True, busy_s)
