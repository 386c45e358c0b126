"""`vmherd conformance`: its flags, its list of cases, and the clusters that it cannot check."""

import asyncio
import signal

import pytest

from conformance.case import Kind
from conformance.catalogue import CASES
from controller.cli import main
from controller.commands import conformance
from controller.commands.command import CommandFailed
from controller.commands.conformance import Settings, cancelled_by_signals, run
from tests.conformance.stored_objects import NAMESPACES, StoredObjects


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
        (["--report", "report.txt"], "--report needs a file name that ends with .json, .md or .xml"),
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


async def interrupted_by(*numbers: signal.Signals, after_s: float) -> int:
    """Count how many times these signals cancel a task. The signals come `after_s` seconds apart."""
    loop = asyncio.get_running_loop()
    count = 0
    with cancelled_by_signals():
        for index, number in enumerate(numbers):
            loop.call_later(index * after_s, signal.raise_signal, number)
        end = loop.time() + len(numbers) * after_s + 1
        while loop.time() < end:
            try:
                await asyncio.sleep(end - loop.time())
            except asyncio.CancelledError:
                count += 1
    return count


@pytest.mark.parametrize(
    ("numbers", "after_s", "count"),
    [
        ((signal.SIGINT,), 0.0, 1),
        ((signal.SIGTERM,), 0.0, 1),
        ((signal.SIGINT, signal.SIGTERM), 0.2, 1),
        ((signal.SIGTERM, signal.SIGINT), 0.2, 1),
        ((signal.SIGINT, signal.SIGINT), 1.2, 2),
        ((signal.SIGINT, signal.SIGTERM), 1.2, 1),
    ],
)
async def test_the_first_signal_and_a_later_ctrl_c_cancel_the_run(numbers, after_s, count):
    assert await asyncio.create_task(interrupted_by(*numbers, after_s=after_s)) == count
