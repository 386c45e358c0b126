"""Exec plugins: their time limit, their children, the terminal, and servers that get no credentials."""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import pytest

from informers.errors import Unauthorized
from informers.http import exec_plugin
from informers.http.configuration import load_credentials
from informers.http.kubeconfig import ConfigurationError
from tests.informers.faultserver import FaultServer, answer, client_of, credential, script, write_kubeconfig
from tests.informers.subjects import CONFIGMAPS

HTTPS = "https://127.0.0.1:1"
MINE = f"printf '%s' '{credential('mine')}'"


def write(tmp_path: Path, text: str, server: str = HTTPS, **settings: object) -> str:
    """Write a kubeconfig whose exec plugin is this script of sh, and return its path."""
    return str(write_kubeconfig(tmp_path / "kubeconfig", server, script(text, **settings)))


def is_running(file: Path) -> bool:
    """Return True if the process runs whose ID is in the file. A zombie has ended."""
    try:
        status = Path(f"/proc/{file.read_text().strip()}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def ended(file: Path) -> None:
    """Wait until the process has ended. A killed process needs some milliseconds."""
    async with asyncio.timeout(5):
        while is_running(file):
            await asyncio.sleep(0.01)


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "TIME_LIMIT_S", 0.3)


@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize(
    "text",
    [
        "echo $$ > PID; exec sleep 60",
        "sleep 60 & echo $! > PID; wait",
        "(sleep 60 & echo $! > PID; wait); true",
        "trap '' TERM INT HUP; sleep 60 & echo $! > PID; wait",
    ],
    ids=["the plugin", "its child", "its grandchild", "deaf to signals"],
)
async def test_a_plugin_that_hangs_is_killed_with_its_children_at_the_time_limit(tmp_path: Path, text: str):
    path = write(tmp_path, text.replace("PID", str(tmp_path / "pid")))
    started = time.monotonic()
    with pytest.raises(ConfigurationError, match=r"exec: sh: it has not ended within 0.3 s"):
        await load_credentials(path)
    assert time.monotonic() - started < 5
    await ended(tmp_path / "pid")


async def test_the_children_of_a_plugin_are_killed_if_the_command_is_interrupted(tmp_path: Path):
    loading = asyncio.create_task(load_credentials(write(tmp_path, f"sleep 60 & echo $! > {tmp_path}/pid; wait")))
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        await asyncio.sleep(0.01)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await ended(tmp_path / "pid")


async def test_an_agent_that_a_plugin_starts_keeps_nobody_waiting_and_stays(tmp_path: Path):
    path = write(tmp_path, f"sleep 5 & echo $! > {tmp_path}/pid; {MINE}")
    started = time.monotonic()
    credentials = await load_credentials(path)
    assert await credentials.authorization() == "Bearer mine"
    assert time.monotonic() - started < 4
    assert is_running(tmp_path / "pid")
    os.kill(int((tmp_path / "pid").read_text()), 9)


async def test_a_plugin_that_hangs_at_a_renewal_occupies_no_slot_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hang = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    user = script(f"test -e {tmp_path}/ran && {{ {hang}; }}; touch {tmp_path}/ran; {MINE}")
    server = FaultServer(answer(401), answer(201))
    async with client_of(server, tmp_path, user=user, max_inflight=1, tls=True) as client:
        monkeypatch.setattr(exec_plugin, "TIME_LIMIT_S", 1.0)  # the first run has ended, also on a busy machine
        rejected = asyncio.create_task(client.create(CONFIGMAPS, "ns", b"{}"))
        while not server.requests:
            await asyncio.sleep(0.001)
        await client.create(CONFIGMAPS, "ns", b"{}")
        assert not rejected.done(), "the plugin still hangs"
        with pytest.raises(Unauthorized):
            await rejected
    await ended(tmp_path / "pid")


async def test_a_plugin_on_a_terminal_may_ask_its_user_and_take_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(exec_plugin, "TIME_LIMIT_S", 0.05)
    monkeypatch.setattr(exec_plugin, "is_interactive", lambda: True)
    session = "ps -o sid= -p $$"
    text = f"sleep 0.2; {session} > {tmp_path}/session; echo open the page, $KUBERNETES_EXEC_INFO >&2; {MINE}"
    credentials = await load_credentials(write(tmp_path, text))
    assert await credentials.authorization() == "Bearer mine"
    said = capfd.readouterr().err
    assert said.startswith("open the page")
    assert '"interactive":true' in said
    assert int((tmp_path / "session").read_text()) == os.getsid(0), "the plugin keeps the terminal"


async def test_a_plugin_that_wants_no_terminal_gets_none_and_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exec_plugin, "is_interactive", lambda: True)
    text = f"cat; ps -o sid= -p $$ > {tmp_path}/session; echo $$ > {tmp_path}/pid; {MINE}"
    await load_credentials(write(tmp_path, text, interactiveMode="Never"))
    assert (tmp_path / "session").read_text().strip() == (tmp_path / "pid").read_text().strip()


async def test_a_plugin_that_needs_a_terminal_is_an_error_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exec_plugin, "is_interactive", lambda: False)
    with pytest.raises(ConfigurationError, match="exec: sh: it needs a terminal"):
        await load_credentials(write(tmp_path, MINE, interactiveMode="Always"))


async def test_a_plugin_that_fails_is_an_error_of_one_line_with_its_message(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"exec: sh: it ended with code 3: log in first, then again$"):
        await load_credentials(write(tmp_path, "echo log in first, >&2; echo then again >&2; exit 3"))


async def test_a_plugin_without_a_folder_for_its_output_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=r"exec: sh: .*No such file or directory"):
        await load_credentials(write(tmp_path, MINE))


@pytest.mark.parametrize("user", [{}, {"token": ""}, {"as": "jane"}])
async def test_a_user_without_credentials_has_no_warning_for_http(tmp_path: Path, user: dict[str, str]):
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", user)
    assert (await load_credentials(str(path))).notice == ""


async def test_neither_http_nor_a_given_token_runs_the_plugin(tmp_path: Path):
    text = f"touch {tmp_path}/ran; {MINE}"
    credentials = await load_credentials(write(tmp_path, text, server="http://127.0.0.1:1"))
    assert await credentials.authorization() is None
    assert credentials.notice == "http://127.0.0.1:1 gets no credentials, because http is not encrypted"
    credentials = await load_credentials(write(tmp_path, text), token="given")
    assert await credentials.authorization() == "Bearer given"
    assert credentials.notice == ""
    assert not (tmp_path / "ran").exists()


def test_a_plugin_runs_in_the_event_loop_of_another_thread(tmp_path: Path):
    path = write(tmp_path, MINE)

    def load() -> str | None:
        async def authorize() -> str | None:
            return await (await load_credentials(path)).authorization()

        return asyncio.run(authorize())

    async def in_two_loops() -> list[str | None]:
        return await asyncio.gather(asyncio.to_thread(load), asyncio.to_thread(load))

    assert asyncio.run(in_two_loops()) == ["Bearer mine", "Bearer mine"]
