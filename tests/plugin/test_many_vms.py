"""`tree` of 200 VMs: sick ones first, healthy ones in one row, and names that keep their end."""

import itertools
import json
import re

import pytest

from controller.kubevirt.resources import VMS
from informers.meta import ObjectKey
from plugin.connection import Failed
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster, Shell

LONG = "a-pool-whose-name-is-so-long-that-no-table-has-room-for-it"


def test_sick_vms_come_first_and_healthy_ones_are_one_row(cluster: Cluster, shell: Shell):
    states.large_pool(cluster)
    header, pool, *rows = shell.output("tree vmpool/web").splitlines()
    assert (header.split()[0], pool.split()[:4]) == ("NAME", ["vmpool/web", "1", "Degraded", "194/200"])
    sick = [f"|- vm/web-{number}" for number in range(194, 200)]
    assert [" ".join(row.split()[:5]) for row in rows] == [
        *(f"{each} 1 ErrorUnschedulable False" for each in sick),
        "`- 194 VMs 1 Running",
    ]


def test_all_vms_have_a_row_if_a_user_asks(cluster: Cluster, shell: Shell):
    states.large_pool(cluster)
    assert len(shell.output("tree vmpool/web --all").splitlines()) == 202
    assert "more" not in shell.output("tree vmpool/web --problems")
    assert len(shell.output("tree vmpool/web --problems").splitlines()) == 8
    answer = json.loads(shell.output("tree vmpool/web --problems -o json"))
    assert [each["name"] for each in answer["members"]] == [f"web-{number}" for number in range(194, 200)]
    assert len(json.loads(shell.output("tree vmpool/web -o json"))["members"]) == 200


@pytest.mark.parametrize("words", ["vmpool/web", "vmpool -A", "vmpool/web --problems"])
@pytest.mark.parametrize("sick", [0, 39, 150, 200])
def test_no_tree_is_longer_than_forty_lines(cluster: Cluster, shell: Shell, sick: int, words: str):
    states.large_pool(cluster, sick=sick)
    out = shell.output(f"tree {words}")
    assert len(out.splitlines()) <= 40
    folded = sum(map(int, re.findall(r"- (\d+) VMs ", out)))
    assert folded + len(re.findall(r"- vm/web-", out)) == (sick if "problems" in words else 200)


def test_many_objects_share_the_lines(cluster: Cluster, shell: Shell):
    for name in ("api", "db", "web"):
        states.large_pool(cluster, 30, sick=2, name=name)
    lines = shell.output("tree vmpool").splitlines()
    assert len(lines) <= 40
    assert sum("28 VMs" in line for line in lines) == 3


@pytest.mark.parametrize("line", ["tree vmpool", "tree vmpool -A", "list", "list -A"])
def test_a_long_name_keeps_its_end_and_the_last_column_its_room(
    cluster: Cluster, shell: Shell, terminal: None, monkeypatch: pytest.MonkeyPatch, line: str
):
    monkeypatch.setenv("NO_COLOR", "1")
    states.large_pool(cluster, 12, sick=1, name=LONG)
    status = {"problem": f"{LONG}-11: ErrorUnschedulable", "replicas": 12, "updatedReplicas": 12}
    cluster.server.change(POOL, ObjectKey("default", LONG), {"status": status})
    lines = shell.output(line).splitlines()
    assert all(len(each) <= 80 for each in lines)
    assert re.search(r"^(default )? *vmpool...\S*-it ", lines[1])
    assert "tree" not in line or re.search(r"[|]- vm\S*\.\.\.\S*-it-11 ", lines[2] + lines[3] + lines[4])
    assert f"vm/{LONG}-11 " in shell.output("tree vmpool -o wide")


def test_in_a_pipe_a_vm_that_becomes_well_is_not_gone(cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch):
    states.large_pool(cluster, 60, sick=2)
    steps = itertools.count()

    async def pause(seconds: float) -> None:
        match next(steps):
            case 0:
                cluster.server.remove(VMS, ObjectKey("default", "web-59"))
            case 1:
                ready = [{"type": "Ready", "status": "True"}]
                status = {"printableStatus": "Running", "ready": True, "conditions": ready}
                cluster.server.change(VMS, ObjectKey("default", "web-58"), {"status": status})
            case _:
                raise Failed("error: the end")

    monkeypatch.setattr("plugin.commands.watching.sleep", pause)
    _, out, _ = shell("tree vmpool/web -w")
    assert [line for line in out.splitlines() if "is gone" in line] == ["vm/web-59 is gone"]
    assert ["58 VMs" in out, "59 VMs" in out] == [True, True]
    assert POOL.plural not in out
