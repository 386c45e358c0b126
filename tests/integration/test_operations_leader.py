"""Two controllers: the leader writes, the standby takes over."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from controller.leaderelection.lease import QUARANTINE, SECOND_WRITER
from sandbox.audit import AuditRecord, read_records
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.busy_controller import AWAY_S, BUSY
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import SHORT_LEASE, ControllerProcess, controller_process
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster


@pytest.fixture
def old(idle_namespace: SetNamespace, tmp_path: Path) -> Iterator[ControllerProcess]:
    with controller_process(idle_namespace.plane, tmp_path, *SHORT_LEASE) as program:
        yield program


@pytest.fixture
def new(old: ControllerProcess, idle_namespace: SetNamespace, tmp_path: Path) -> Iterator[ControllerProcess]:
    """The standby, with synced caches."""
    with ExitStack() as stack:
        program = stack.enter_context(controller_process(idle_namespace.plane, tmp_path, *SHORT_LEASE, wait=False))
        eventually(lambda: program.lines(msg="caches synced"), within_s=60, what="the standby has its caches")
        assert not program.working
        assert old.working
        yield program


def writers(sets: SetNamespace) -> set[str]:
    """The credential IDs of all writes in this namespace, Events included."""
    return {record.credential for record in writes(sets)}


def writes(sets: SetNamespace) -> list[AuditRecord]:
    return [
        record
        for record in read_records(sets.plane.audit_log, sets.since)
        if record.user_agent.startswith("vmherd/")
        and record.namespace == sets.namespace
        and record.verb not in ("get", "list", "watch")
    ]


def test_a_leader_suspended_beyond_its_lease_writes_nothing_when_it_continues(
    idle_namespace: SetNamespace, old: ControllerProcess, new: ControllerProcess
) -> None:
    idle_namespace.make(300)
    eventually(lambda: len(idle_namespace.vmis()) >= 40, within_s=30, what="the scale-up is under way")
    assert writers(idle_namespace) == {old.credential}, "only the leader writes"
    for program, leads in ((old, "1.0"), (new, "0.0")):
        assert program.health("readyz")[0] == 200
        assert f'leader_election_master_status{{name="vmherd"}} {leads}' in program.metrics()
    old.process.send_signal(signal.SIGSTOP)
    idle_namespace.change({"spec": {"replicas": 301}})  # the standby has work, even if the signal came late
    alive = idle_namespace.wait_for(301, within_s=60)
    continued = datetime.now(UTC)
    old.process.send_signal(signal.SIGCONT)
    assert old.process.wait(30) != 0
    new.settle(idle_namespace.namespace, idle_namespace.admin)
    assert idle_namespace.alive().keys() == alive.keys()
    assert new.credential in writers(idle_namespace)
    first_of_new = min(r.request_received_timestamp for r in writes(idle_namespace) if r.credential == new.credential)
    late = [
        r
        for r in writes(idle_namespace)
        if r.credential == old.credential and r.request_received_timestamp > first_of_new
    ]
    assert first_of_new < continued
    # A process can stop between the leadership check and the sending of one request, so one late request is allowed.
    assert len(late) <= 1
    assert idle_namespace.created() == dict.fromkeys(alive, 1)
    assert "the lease vmherd-system/vmherd" in old.log.read_text().splitlines()[-1]


def test_a_leader_outside_the_cluster_stops_writing_after_a_leader_in_a_pod_begins(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    flags = ("--leader-election-namespace", "default")
    plane, (inside, outside) = idle_namespace.plane, (tmp_path / "pod", tmp_path / "laptop")
    inside.mkdir()
    outside.mkdir()
    with controller_process(plane.kubeconfig, outside, *flags, *SHORT_LEASE) as laptop:
        assert laptop.health("readyz")[0] == 200
        with controller_process(plane, inside, *SHORT_LEASE) as in_pod:
            reason = "already leads with the lease vmherd in namespace vmherd-system"
            eventually(lambda: reason in laptop.health("readyz")[1], within_s=90, what="the second leader is found")
            assert "vmherd_second_writer 1.0" in laptop.metrics()
            idle_namespace.make(3)
            idle_namespace.wait_for(3)
            assert writers(idle_namespace) == {in_pod.credential}
            assert in_pod.working
            assert laptop.working
        # Each later controller outside the cluster would wait for the end of a lease that is not released.
        assert laptop.stop() == 0


def test_two_processes_that_do_not_see_each_others_lease_find_each_other_by_their_writes(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    """One leads with a lease, and the other needs none. Both go on, and the lease tells `kubectl vmherd why`."""
    plane, names = idle_namespace.plane, ("first", "second")
    for name in names:
        (tmp_path / name).mkdir()
    with (
        controller_process(plane, tmp_path / names[0], *SHORT_LEASE) as leader,
        controller_process(plane, tmp_path / names[1], "--no-leader-elect") as other,
    ):
        counts = cycle((1, 2))
        idle_namespace.make(3)

        def named() -> bool:
            idle_namespace.scale(next(counts))
            return "another vmherd, " in leader.health("readyz")[1]

        eventually(named, within_s=90, what="the other process is found")
        assert leader.lines(msg="vmherd does not work alone, because another controller works on the same objects")
        leases = Kubectl(plane.kubeconfig, "vmherd-system")

        def noted() -> bool:
            return "another vmherd, " in leases.json("get", "lease", "vmherd")["metadata"]["annotations"].get(
                SECOND_WRITER, ""
            )

        eventually(noted, what="the lease names it after its next renewal")
        assert leader.working
        assert other.working


def test_p30_after_the_start_one_line_and_a_metric_show_the_sets_over_a_limit(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    sound = idle_namespace.document(1)
    deep = '{"x":' * 70 + "1" + "}" * 70
    for name, unknown in (("deep", json.loads(deep)), ("sound", 1)):
        template = {**sound["spec"]["template"], "spec": {**sound["spec"]["template"]["spec"], "unknown": unknown}}
        idle_namespace.make(1, name=name, template=template)
    with controller_process(idle_namespace.plane, tmp_path, *SHORT_LEASE) as program:
        eventually(lambda: program.lines(msg="specs are invalid"), what="the line at the start")
        eventually(lambda: "vmherd_spec_invalid{" in program.metrics(), what="the metric")
        eventually(lambda: len(idle_namespace.alive()) == 1, what="the other set has its VMI")
        [line] = program.lines(msg="specs are invalid")
        assert (line["number"], line["first"]) == (1, [f"{idle_namespace.namespace}/deep"])
        assert line["why"].endswith("is too much: a template may have 64 levels")
        shown = [each for each in program.metrics().splitlines() if each.startswith("vmherd_spec_invalid{")]
        assert len(shown) == 1
        assert 'name="deep"' in shown[0]


LEASE = ("--leader-election-namespace", "default", "--lease-duration", "3s", "--renew-deadline", "2s")
FLAGS = (*LEASE, "--retry-period", "400ms")
PROGRAM = "tests.controlplane.busy_controller"


def lease_of(plane: ControlPlane) -> dict[str, Any]:
    return Kubectl(plane.kubeconfig, "default").json("get", "lease", "vmherd")


def noted(plane: ControlPlane) -> str:
    return str(lease_of(plane)["metadata"].get("annotations", {}).get(QUARANTINE, ""))


def test_a_leader_whose_loop_is_busy_for_longer_than_its_lease_stays_leader_and_the_lease_names_the_set(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    plane, slow = idle_namespace.plane, f"replicaset/{idle_namespace.namespace}/herd"
    with controller_process(plane.kubeconfig, tmp_path, *FLAGS, program=PROGRAM) as program:
        idle_namespace.make(2, annotations={BUSY: "3.5"})
        eventually(lambda: noted(plane) == slow, within_s=3.4, what="the lease names the set while the loop is busy")
        reacts(lambda: idle_namespace.told("Quarantined") == {"herd": 1}, what="the Event of the set")
        assert "vmherd_quarantined_objects 1.0" in program.metrics()
        idle_namespace.wait_for(2)
        assert program.working
        assert len(program.lines(msg="became leader")) == 1
        eventually(lambda: noted(plane) == "", within_s=30, what="the next quick pass ends the quarantine")
        assert program.stop() == 0
    assert lease_of(plane)["spec"]["leaseTransitions"] == 0


def test_a_process_whose_loop_does_not_answer_ends_and_its_successor_takes_the_set_last(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    plane, slow = idle_namespace.plane, f"replicaset/{idle_namespace.namespace}/herd"
    with controller_process(plane.kubeconfig, tmp_path, *FLAGS, program=PROGRAM) as program:
        idle_namespace.make(2, annotations={BUSY: "60"})
        assert program.process.wait(30) == 1
        [last] = program.lines(msg="the event loop does not answer, ending")
        assert last["at_work"] == slow
        assert AWAY_S < last["away_s"] < AWAY_S + 4
        assert "Traceback" not in program.log.read_text()
    assert noted(plane) == slow
    idle_namespace.objects.make(idle_namespace.document(2, name="other"))
    idle_namespace.change({"metadata": {"annotations": {BUSY: None}}})
    (tmp_path / "next").mkdir()
    with controller_process(plane.kubeconfig, tmp_path / "next", *FLAGS, program=PROGRAM) as program:
        eventually(lambda: program.lines(msg="reconciled", name="herd"), within_s=30, what="the set has its turn")
        assert program.lines(msg="reconciled", name="other"), "the other set was first"
        led = program.lines(msg="became leader")[0]["ts"]
        first = {
            name: min(line["ts"] for line in program.lines(msg="reconciled", name=name)) for name in ("herd", "other")
        }
        assert led < first["other"] < first["herd"]
        eventually(lambda: noted(plane) == "", within_s=30, what="a quick pass ends the quarantine")
        assert program.stop() == 0
