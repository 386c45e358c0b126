"""`--observe` beside a cluster at work: everything is planned, everything is told, and nothing is written."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.cluster import Kubectl
from tests.integration.herd import Herd, Place, eventually, herd, stays
from tests.integration.ranch import Ranch
from tests.release import NAMESPACE

pytestmark = pytest.mark.cluster

WRITES = ("create", "update", "patch", "delete", "deletecollection")


def observed(program: Herd, place: Place) -> list[dict[str, object]]:
    return [line for line in program.lines(msg="reconciled", namespace=place.namespace) if line.get("level") == "info"]


def test_an_onlooker_tells_what_it_would_do_and_writes_nothing(vacant: Place, tmp_path: Path) -> None:
    """Under permissions to read alone, beside a set, a pool and a VMI that would be adopted."""
    vacant.make_vmi("orphan")
    vacant.make_set(3)
    Ranch(vacant.plane, vacant.namespace).make_pool(2)
    since = vacant.plane.audit_position()
    with herd(vacant.plane, tmp_path, "--observe", wait=False) as program:
        eventually(lambda: len(observed(program, vacant)) >= 2, what="both are told of")
        told = {str(line["controller"]): line for line in observed(program, vacant)}
        assert told["replicaset"]["create_would"] == 2
        assert told["replicaset"]["patch_would"] == 1
        assert any("orphan" in line for line in told["replicaset"]["would"])  # type: ignore[attr-defined]
        assert told["pool"]["patch_would"] == 1
        series = 'vmherd_actions_total{action="create",controller="replicaset",outcome="would"} 2.0'
        assert series in program.metrics()
        assert urllib.request.urlopen(f"{program.health_url}/readyz", timeout=10).status == 200
        vacant.change_set({"spec": {"replicas": 5}})
        eventually(lambda: observed(program, vacant)[-1].get("create_would") == 4, what="a change is told of")
        passes = program.passes(vacant.namespace)
        stays(lambda: program.passes(vacant.namespace) == passes, for_s=2, what="nothing spins")
        assert program.stop() == 0
    written = [
        (record.verb, record.resource)
        for record in vacant.plane.audit_records(since)
        if record.credential == program.credential
        and record.verb in WRITES
        and not record.resource.startswith("selfsubject")
    ]
    assert written == []
    assert set(vacant.vmis()) == {"orphan"}
    assert vacant.status() == {}
    assert vacant.events() == []
    assert Kubectl(vacant.plane.kubeconfig)("get", "lease", "vmherd", "-n", NAMESPACE, check=False).returncode == 1
