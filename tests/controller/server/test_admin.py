"""The pages under `/debug/` that cost time or change the process."""

import asyncio
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
import structlog

from controller import logs
from controller.server import admin
from tests.controller.server.serving import serving

PAGES = [("GET", "profile"), ("GET", "log-level"), ("PUT", "log-level?level=debug")]
LEVELS = "debug, info, warning, error"


@pytest.fixture(autouse=True)
def _at_info() -> None:
    logs.set_level("info")


@asynccontextmanager
async def asking(source: str = "127.0.0.1") -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(local_addr=(source, 0))
    async with (
        serving(admin=admin.admin_routes()) as server,
        aiohttp.ClientSession(f"http://{server.health.bound}/debug/", connector=connector) as session,
    ):
        yield session


async def answer_of(session: aiohttp.ClientSession, method: str, page: str) -> tuple[int, str]:
    async with session.request(method, page) as answer:
        return answer.status, await answer.text()


async def test_a_profile_counts_the_stacks_of_each_thread(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admin, "PERIOD_S", 0.05)
    async with asking() as session:
        first = asyncio.ensure_future(answer_of(session, "GET", "profile?seconds=1"))
        await asyncio.sleep(0.2)
        assert await answer_of(session, "GET", "profile") == (409, "another profile is running\n")
        status, text = await first
    lines = [re.fullmatch(r"([^;]+);(.+) (\d+)", line) for line in text.splitlines()]
    assert status == 200
    assert sum(int(line[3]) for line in lines if line and line[1] == "MainThread") == 20
    assert any(line and re.search(r"\w+ \(\w+\.py:\d+\)$", line[2]) for line in lines)


async def test_the_log_level_changes_at_once_in_all_loggers():
    log, shown = structlog.get_logger(), io.StringIO()
    logs.configure("info", "json", stream=shown)
    async with asking() as session:
        assert await answer_of(session, "GET", "log-level") == (200, "info\n")
        log.debug("before")
        assert await answer_of(session, "PUT", "log-level?level=debug") == (200, "debug\n")
        log.debug("after")
        assert await answer_of(session, "GET", "log-level") == (200, "debug\n")
    assert "after" in shown.getvalue()
    assert "before" not in shown.getvalue()


@pytest.mark.parametrize(("method", "page"), PAGES)
async def test_only_clients_on_loopback_may_use_them(method: str, page: str):
    async with asking("127.0.0.2") as session:
        refusal = "only a client on the loopback address may use this page\n"
        assert await answer_of(session, method, page) == (403, refusal)
    assert logs.level() == "info"


@pytest.mark.parametrize(
    ("method", "page", "message"),
    [
        ("GET", "profile?seconds=0", "seconds must be a whole number from 1 to 25\n"),
        ("GET", "profile?seconds=26", "seconds must be a whole number from 1 to 25\n"),
        ("GET", "profile?seconds=1.5", "seconds must be a whole number from 1 to 25\n"),
        ("PUT", "log-level", f"level must be one of {LEVELS}\n"),
        ("PUT", "log-level?level=loud", f"level must be one of {LEVELS}\n"),
    ],
)
async def test_a_wrong_value_is_refused_with_the_right_ones(method: str, page: str, message: str):
    async with asking() as session:
        assert await answer_of(session, method, page) == (400, message)
