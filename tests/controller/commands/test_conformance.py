"""`vmherd conformance`: its flags, its list of cases, and the clusters that it cannot check."""

from __future__ import annotations

import pytest

from controller.cli import main
from controller.commands import conformance
from controller.commands.command import CommandFailed
from controller.commands.conformance import Settings, run
from controller.conformance.case import Kind
from controller.conformance.catalogue import CASES
from tests.controller.conformance.stored_objects import NAMESPACES, StoredObjects


def test_the_list_has_each_selected_case(capsys):
    assert main(["conformance", "--list", "--only", "set-scale-in,P14"]) == 0
    out = capsys.readouterr().out
    assert [line.split("`")[1] for line in out.splitlines() if "`" in line] == [
        case.id for case in CASES if case.id == "set-scale-in" or "P14" in case.rules.split()
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--only", "set-nmaes"], "no case matches 'set-nmaes'; try 'vmherd conformance --help'"),
        (["--kind", "sets", "--only", "pool-names"], "no case is left: see --list"),
        (["--kind", "vms"], "--kind: 'vms' is invalid; expected one of sets, pools"),
        (["--report", "report.txt"], "--report needs a file name that ends with .json or .xml"),
        (["--timeout", "0"], "--timeout: '0' is invalid; expected a factor from 0.01 to 100, such as 2"),
        (["--timeout", "nan"], "--timeout: 'nan' is invalid; expected a factor from 0.01 to 100, such as 2"),
        (["--parallel", "0"], "--parallel: 0 is not in the range 1<=x<=100"),
        (["--pool-group", "pools"], "--pool-group: 'pools' is invalid; expected the name of an API group"),
    ],
)
def test_wrong_flags_are_one_line_and_exit_code_2(arguments, line, capsys):
    assert main(["conformance", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err
    assert err.count("\n") == 1


def test_a_cluster_that_cannot_be_reached_is_one_line_and_exit_code_1(tmp_path, capsys):
    missing = tmp_path / "kubeconfig"
    assert main(["conformance", "--kubeconfig", str(missing)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({}, ("pool.vmherd.dev", "pool.kubevirt.io")),
        ({"mode": "alongside"}, ("pool.vmherd.dev",)),
        ({"mode": "takeover"}, ("pool.kubevirt.io",)),
        ({"mode": "standalone"}, ("pool.kubevirt.io",)),
        ({"mode": "alongside", "pool_group": "pools.example.org"}, ("pools.example.org",)),
    ],
)
def test_the_mode_or_a_group_says_where_the_kinds_are_looked_for(settings, groups):
    assert tuple(conformance._groups(Settings(**settings), Kind.POOLS)) == groups


@pytest.mark.looptime
async def test_a_cluster_without_the_kinds_is_an_error_and_gets_no_namespace():
    server = StoredObjects()
    with pytest.raises(CommandFailed, match=r"serves none of the kinds in vmherd\.dev, kubevirt\.io, pool"):
        await run(server, Settings(), CASES)
    assert server.under(NAMESPACES) == []
