"""`list -w` and `tree -w`: a live table on a terminal, and one line for each change elsewhere."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.kubevirt.resources import VMS
from informers.meta import ObjectKey
from plugin.connection import Failed
from tests import pool_builders
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster, Shell

Steps = Callable[..., None]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Gives the watch a change of the cluster in each of its pauses. After the last one, the watch ends."""
    changes: list[Iterator[Callable[[], None]]] = []

    async def pause(seconds: float) -> None:
        change = next(changes[0], None)
        if change is None:
            raise Failed("error: the end")
        change()

    monkeypatch.setattr("plugin.commands.watching.sleep", pause)
    return lambda *each: changes.append(iter(each))


def stop(cluster: Cluster) -> None:
    change = {"status": {"printableStatus": "Stopping", "conditions": []}}
    cluster.server.change(VMS, ObjectKey("default", "web-1"), change)


def test_without_a_terminal_only_the_lines_that_change_are_printed(cluster: Cluster, shell: Shell, steps: Steps):
    states.pool_at_rest(cluster)
    steps(lambda: None, lambda: stop(cluster), lambda: None)
    code, out, err = shell("tree vmpool/web -w")
    assert (code, err) == (1, "error: the end\n")
    lines = [line.split()[:4] for line in out.splitlines()]
    assert lines[:4] == [
        ["NAME", "REV", "STATUS", "READY"],
        ["vmpool/web", "2", "Running", "2/2"],
        ["|-", "vm/web-0", "2", "Running"],
        ["`-", "vm/web-1", "2", "Running"],
    ]
    assert ["|-", "vm/web-1", "2", "Stopping"] in lines[4:]
    assert not any("vm/web-0" in line for line in lines[4:])
    assert len(lines) <= 6


def test_a_watched_list_shows_new_objects(cluster: Cluster, shell: Shell, steps: Steps):
    states.pool_at_rest(cluster)
    steps(lambda: cluster.put(POOL, pool_builders.pool("api", uid="uid-api", replicas=0)))
    _, out, _ = shell("list -w")
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "vmpool/web", "vmpool/api"]


@pytest.mark.parametrize("flags", ["list -w", "list -w -A", "tree vmpool -w"])
def test_a_line_says_what_is_gone(cluster: Cluster, shell: Shell, steps: Steps, flags: str):
    states.pool_at_rest(cluster)
    cluster.put(POOL, pool_builders.pool("api", uid="uid-api", replicas=0))
    key = ObjectKey("default", "api")
    cluster.server.finalize(POOL, key)
    steps(lambda: cluster.server.remove(POOL, key))
    _, out, _ = shell(flags)
    assert out.splitlines()[-1] == f"{'default ' if '-A' in flags else ''}vmpool/api is gone"


def test_a_terminal_shows_the_whole_table_again(cluster: Cluster, shell: Shell, steps: Steps, terminal: None):
    states.pool_at_rest(cluster)
    steps(lambda: stop(cluster))
    _, out, _ = shell("tree vmpool/web -w")
    first, second = out.index("Running"), out.index("Stopping")
    assert "vm/web-0" in out[first:second], "the whole table again, not the line that changed"
    assert out.count("NAME") >= 2


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("line", ["list -w", "tree vmpool/web -w", "rollout status vmpool/web"])
def test_while_the_server_says_nothing_the_last_picture_stays(
    cluster: Cluster,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    line: str,
    live: bool,
):
    monkeypatch.setattr("plugin.commands.watching.INTERVAL_S", 0.02)
    monkeypatch.setattr("plugin.commands.watching.SILENT_S", 0.1)
    if live:
        request.getfixturevalue("terminal")
    states.pool_rollout(cluster)
    answer = cluster.request

    async def hang(method: str, path: str, **more: Any) -> bytes:
        await asyncio.sleep(0.5)
        raise Failed("error: the end")

    def fall_silent() -> None:
        monkeypatch.setattr(cluster, "request", hang)

    async def count(method: str, path: str, **more: Any) -> bytes:
        if POOL.plural in path and next(reads) == 3:
            fall_silent()
        return await answer(method, path, **more)

    reads = itertools.count()
    monkeypatch.setattr(cluster, "request", count)
    code, out, err = shell(line)
    said = out if live else err
    assert (code, said.count("no answer since 0s") > live, err.splitlines()[-1]) == (1, True, "error: the end")
    assert out.count("web") > 1


def test_the_timeout_of_a_rollout_ends_also_while_the_server_says_nothing(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plugin.commands.watching.INTERVAL_S", 0.02)
    states.pool_rollout(cluster)

    async def hang(method: str, path: str, **more: Any) -> bytes:
        await asyncio.sleep(60)
        return b""

    async def first_pause(seconds: float) -> None:
        monkeypatch.setattr(cluster, "request", hang)

    monkeypatch.setattr("plugin.commands.watching.sleep", first_pause)
    said = "error: timed out waiting for the condition: web-1: ImagePullBackOff, Back-off pulling image"
    code, _, err = shell("rollout status vmpool/web --timeout=1s")
    assert (code, err) == (1, f"{said}\n")


def test_a_document_cannot_be_watched(shell: Shell):
    assert "--watch shows a table" in shell.error("list -w -o json", 2)
