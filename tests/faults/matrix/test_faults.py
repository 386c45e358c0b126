"""Tests of the pure parts of the fault matrix: places, injections, samples, commands and masks."""

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.faults.__main__ import arguments, matching
from tests.faults.judge.judge import Violation
from tests.faults.matrix.catalogue import (
    FAULTS,
    WRITE_FAULTS,
    Injection,
    Trace,
    WatchPlace,
    WritePlace,
    injections,
    numbered,
    parse_place,
    sample,
)
from tests.faults.matrix.matrix import Selection, Summary, chosen_from, lines_of
from tests.faults.matrix.objects import Objects, differences, end_state, without_left_over_disks
from tests.faults.matrix.runner import Result
from tests.faults.matrix.scenarios import scenarios
from tests.faults.matrix.waves import PROCESS_FAULTS, ProcessFault, Scene, Wave, controllers_that_ended
from tests.faults.proxy.actions import CrashBefore, EndWatch, ReplayWatch
from tests.faults.proxy.requests import parse_request
from tests.faults.proxy.rules import Script
from tests.faults.resources import REVISIONS, VMIS, VMS, VOLUMES

CREATE = ("create", "virtualmachines", "")
STATUS = ("patch", "virtualmachinepools", "status")
EVENT = ("create", "events", "")
TRACE = Trace(numbered([CREATE, STATUS, CREATE]), (("virtualmachines", 4),))


def request(method: str, path: str) -> Any:
    return parse_request(method, f"/apis/kubevirt.io/v1/namespaces/n/{path}")


def faults_at(place: str, *traces: Trace) -> set[str]:
    return {each.fault for each in injections("s", traces or (TRACE,)) if str(each.place) == place}


def test_writes_are_counted_by_what_they_write():
    assert [str(place) for place in numbered([CREATE, STATUS, CREATE])] == [
        "create/virtualmachines#1",
        "patch/virtualmachinepools/status#1",
        "create/virtualmachines#2",
    ]


@pytest.mark.parametrize(
    "text", ["create/virtualmachines#2", "patch/virtualmachinepools/status#1", "watch/virtualmachines#4", "write#7"]
)
def test_a_place_is_parsed_from_its_text(text):
    assert str(parse_place(text)) == text


@pytest.mark.parametrize("text", ["", "create", "create#1", "create/vms#0", "create/vms", "a/b/c/d#1"])
def test_a_text_that_is_no_place_is_refused(text):
    with pytest.raises(ValueError, match="not a place"):
        parse_place(text)


def test_the_rule_of_an_injection_acts_only_on_its_write():
    script = Script(Injection("s", "crash-before", WritePlace(*CREATE, 2)).rules())
    creates = [script.on_request(request("POST", "virtualmachines")) for _ in range(3)]
    assert [taken and taken.action for taken in creates] == [None, CrashBefore(), None]
    assert script.on_request(request("PATCH", "virtualmachines/a")) is None


def test_a_plain_number_counts_all_writes_but_those_of_events():
    script = Script(Injection("s", "500", parse_place("write#2")).rules())
    event = parse_request("POST", "/api/v1/namespaces/n/events")
    assert script.on_request(request("POST", "virtualmachines")) is None
    assert script.on_request(event) is None
    assert script.on_request(request("GET", "virtualmachines/a")) is None
    assert script.on_request(request("DELETE", "virtualmachines/a")) is not None


def test_a_fault_with_two_actions_takes_the_second_at_the_next_occasion():
    first, second = Injection("s", "watch-replayed", WatchPlace("virtualmachines", 3)).rules("17")
    assert (first.action, first.after) == (EndWatch(clean=False), 2)
    assert (second.action, second.after) == (ReplayWatch("17"), 0)


def test_each_write_gets_each_fault_that_applies_to_its_verb():
    assert faults_at("create/virtualmachines#2") >= {"crash-before", "crash-after", "lost-answer", "404", "409-exists"}
    assert not faults_at("patch/virtualmachinepools/status#1") & {"404", "409-exists"}
    assert not any(fault.startswith("watch") for fault in faults_at("create/virtualmachines#1"))


def test_each_watch_gets_each_fault_of_watches_at_several_events():
    places = {str(each.place) for each in injections("s", [TRACE]) if isinstance(each.place, WatchPlace)}
    assert places == {"watch/virtualmachines#1", "watch/virtualmachines#4"}
    assert "watch-stalls" in faults_at("watch/virtualmachines#4")


def test_only_crashes_are_injected_at_a_write_that_not_every_run_makes():
    shorter = Trace(numbered([CREATE, STATUS]), ())
    assert faults_at("create/virtualmachines#2", TRACE, shorter) == {"crash-before", "crash-after"}


@pytest.mark.parametrize(
    ("fault", "scenario", "place", "fits"),
    [
        ("creates-refused-403", "pool-heal", "create/virtualmachines#2", True),
        ("creates-refused-403", "pool-heal", "create/controllerrevisions#1", False),
        ("creates-refused-403", "set-create", "create/virtualmachineinstances#1", False),
        ("protected-meanwhile", "pool-undo", "delete/virtualmachineinstances#1", True),
        ("protected-meanwhile", "pool-scale-down", "delete/virtualmachines#1", False),
        ("snapshot-meanwhile", "pool-update-disks", "delete/virtualmachineinstances#1", False),
    ],
)
def test_a_fault_with_places_is_injected_only_there(fault: str, scenario: str, place: str, fits: bool):
    assert FAULTS[fault].fits(scenario, parse_place(place)) is fits


def test_writes_of_events_get_only_a_few_faults():
    assert faults_at("create/events#1", Trace(numbered([EVENT]), ())) == {
        fault.name for fault in FAULTS.values() if fault.on_events
    }


def test_a_sample_covers_each_scenario_and_each_fault_and_depends_on_the_seed():
    everything = [each for name in ("a", "b", "c") for each in injections(name, [TRACE])]
    chosen = sample(everything, 60, seed=3)
    assert {each.scenario for each in chosen} == {"a", "b", "c"}
    assert {each.fault for each in chosen} == {each.fault for each in everything}
    assert len(set(chosen)) == len(chosen) == 60
    assert chosen == sample(everything, 60, seed=3) != sample(everything, 60, seed=4)


def test_the_command_of_an_injection_selects_it_alone():
    wanted = Injection("pool-create", "500", WritePlace(*STATUS, 1))
    _, _, made = shlex.split(wanted.command)
    parsed = arguments(shlex.split(made.removeprefix("ARGS=")))
    selection = Selection(faults=matching(tuple(FAULTS), parsed.fault), place=parsed.at)
    assert chosen_from({name: [TRACE] for name in parsed.scenario}, selection) == (wanted,)


def test_a_plain_number_of_a_write_selects_all_faults_of_writes():
    chosen = chosen_from({"pool-create": [TRACE]}, Selection(place="write#3"))
    assert {each.fault for each in chosen} == {fault.name for fault in WRITE_FAULTS if fault.places == "*"}


def test_a_pattern_that_matches_nothing_ends_the_program():
    assert matching(["set-create", "pool-create"], ["pool-*"]) == ("pool-create",)
    with pytest.raises(SystemExit, match="nothing matches"):
        matching(["set-create"], ["pool-*"])


def objects_with(plural: str, name: str, **item: Any) -> Objects:
    objects = Objects()
    metadata = {"name": name, "uid": name, "resourceVersion": "1", **item.pop("metadata", {})}
    objects[plural][name] = {"metadata": metadata, **item}
    return objects


def test_only_revisions_of_sets_that_are_in_use_belong_to_the_end_state():
    label = "vmherd.dev/template-hash"
    objects = objects_with(VMIS, "herdabc", metadata={"labels": {label: "used"}})
    for hashed in ("used", "other"):
        metadata = {"name": f"herd-{hashed}", "labels": {label: hashed}}
        objects.by_resource[REVISIONS][f"herd-{hashed}"] = {"metadata": metadata, "data": {}}
    objects.by_resource[REVISIONS]["pool-1"] = {"metadata": {"name": "pool-1"}, "data": {}}
    names = [json.loads(line)["metadata"]["name"] for line in end_state(objects)[REVISIONS]]
    assert sorted(names) == ["herd-used", "pool-1"]


def test_the_number_of_a_sets_revision_does_not_belong_to_the_end_state():
    def with_revision(number: int) -> Objects:
        labels = {"vmherd.dev/template-hash": "used"}
        objects = objects_with(REVISIONS, "herd-used", metadata={"labels": labels}, revision=number)
        objects.by_resource[VMIS]["herdabc"] = {"metadata": {"name": "herdabc", "labels": labels}}
        return objects

    assert end_state(with_revision(2)) == end_state(with_revision(3))


def test_end_states_are_equal_if_only_identities_and_times_differ():
    first = objects_with(VMS, "pool-0", spec={"a": 1}, status={"conditions": [{"lastTransitionTime": "1"}]})
    second = objects_with(VMS, "pool-0", spec={"a": 1}, status={"conditions": [{"lastTransitionTime": "2"}]})
    second[VMS]["pool-0"]["metadata"].update(uid="another", resourceVersion="7")
    assert end_state(first) == end_state(second)
    assert not list(differences(end_state(first), end_state(second)))


def test_the_names_of_the_vmis_of_a_set_are_masked_and_those_of_a_pool_are_not():
    labels = {"labels": {"kubevirt.io/vm-pool-revision-name": "pool-1"}}
    assert end_state(objects_with(VMIS, "herdabc")) == end_state(objects_with(VMIS, "herdxyz"))
    assert end_state(objects_with(VMIS, "pool-0", metadata=labels)) != end_state(
        objects_with(VMIS, "pool-1", metadata=labels)
    )


def test_a_difference_names_the_field_that_differs():
    first, second = (end_state(objects_with(VMS, "pool-0", spec={"a": value, "b": 1})) for value in (1, 2))
    assert list(differences(first, second)) == [f"- {VMS} .spec.a=1", f"+ {VMS} .spec.a=2"]


def test_disks_without_a_vm_are_left_out_only_if_the_reference_does_not_have_them():
    vm = {"ownerReferences": [{"kind": "VirtualMachine", "name": "pool-0"}]}
    reference = end_state(objects_with(VOLUMES, "kept"))
    assert without_left_over_disks(reference, reference) == reference
    assert without_left_over_disks({}, reference) == {}
    owned = end_state(objects_with(VOLUMES, "root-0", metadata=vm))
    assert without_left_over_disks({}, owned) == owned
    others = end_state(objects_with(VMS, "pool-0"))
    assert without_left_over_disks({}, others) == others


def test_each_scenario_has_its_own_name_and_says_its_kind():
    names = [scenario.name for scenario in scenarios()]
    assert len(set(names)) == len(names)
    assert {name.partition("-")[0] for name in names} == {"set", "pool"}


def test_the_summary_tells_the_command_of_each_violation_and_each_fault_that_did_not_fire():
    injection = Injection("pool-create", "500", WritePlace(*CREATE, 1))
    violated = Result(
        scenario="pool-create",
        injection=injection,
        namespace="n",
        fired=1,
        checks={"S1": 2},
        violations=(Violation("S1", "two creates", ("create a", "create a")),),
    )
    silent = Result(scenario="pool-create", injection=injection, namespace="m")
    summary = Summary(results=(violated, silent), seconds=1.0)
    text = "\n".join(lines_of(summary))
    assert injection.command in text
    assert "did not fire: pool-create 500 create/virtualmachines#1" in text
    assert "S1 2" in text
    assert (summary.fired, len(summary.unfired), len(summary.violations)) == (1, 1, 1)


async def test_a_wave_strikes_after_all_users_have_acted_and_waits_for_no_run_that_is_not_ready():
    told: list[str] = []
    fault = ProcessFault(
        name="told", before=lambda _: told.append("before"), strike=lambda _: told.append("strike"), loses_acts=True
    )
    wave = Wave(fault, Scene(None, (), Path()), 3)  # type: ignore[arg-type]

    async def run(*, ready: bool) -> None:
        await wave.prepared(ready=ready)
        if ready:
            told.append("act")
            await wave.acted()
            told.append("act again")

    async with asyncio.TaskGroup() as group:
        group.create_task(wave.strike())
        for ready in (True, False, True):
            group.create_task(run(ready=ready))
    assert told == ["before", "act", "act", "strike", "act again", "act again"]
    assert wave.herd(None, "").fired == 1
    assert str(wave.injection("pool-heal")) == "pool-heal told process"


class Ended:
    """A controller process that has ended with 1."""

    def __init__(self, directory: Path, name: str, last_line: str) -> None:
        self.log = directory / name
        self.log.write_text(f"working\n{last_line}\n")
        self.returncode = 1
        self.process = self

    def poll(self) -> int:
        return self.returncode


@pytest.mark.parametrize(
    ("fault", "last_lines", "told"),
    [
        ("leader-frozen", ["vmherd: the lease vmherd-system/vmherd could not be renewed for 6s"], 0),
        ("leader-frozen", ["vmherd: the lease vmherd-system/vmherd is held by b"] * 2, 2),
        ("leader-frozen", ["Traceback"], 1),
        ("etcd-frozen", ["vmherd: the lease vmherd-system/vmherd could not be renewed for 6s"], 1),
    ],
)
def test_only_the_frozen_leader_may_end(tmp_path: Path, fault: str, last_lines: list[str], told: int) -> None:
    ended = [Ended(tmp_path, str(number), line) for number, line in enumerate(last_lines)]
    scene = Scene(None, ended, tmp_path)  # type: ignore[arg-type]
    assert len(list(controllers_that_ended(scene, PROCESS_FAULTS[fault]))) == told
