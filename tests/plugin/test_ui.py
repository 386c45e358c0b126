"""`kubectl vmherd ui`: who gets an answer, what the pages show, and that texts in objects are never markup."""

import asyncio
import html
import re
import socket
import webbrowser
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.events.event import EVENTS
from controller.kinds import POOLS
from controller.kubevirt.resources import VMS
from controller.leaderelection.lease import LEASES
from controller.replicas.history import fact
from controller.runtime.reconciler import API_WARNING
from informers.errors import Forbidden, ServerError, TransportError
from informers.meta import ObjectKey
from plugin.commands.ui import redirect_to
from plugin.connection import Failed, Session
from plugin.flags import Flags
from plugin.ui.html import tag
from plugin.ui.look import Changes
from plugin.ui.pages import Top, object_page
from plugin.ui.server import serving
from plugin.views.reasons import Reason
from plugin.views.situation import situation_from_status
from tests import pool_builders
from tests.builders import NOW
from tests.plugin import states
from tests.plugin.cluster import POOL, Cluster
from tests.plugin.scenes import SCENES

OF_WEB = f"default/{POOL.plural}.{POOL.group}/web"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\n\ndata: x"


class Site:
    """A running page: its address, and what tells it of changes."""

    def __init__(self, address: str, changes: Changes, client: aiohttp.ClientSession) -> None:
        self.address, self.changes, self.client = address, changes, client
        self.port = int(address.split(":")[2].partition("/")[0])

    async def get(self, place: str = "", **more: Any) -> tuple[int, str, Mapping[str, str]]:
        async with self.client.get(self.address + place, **more) as answer:
            return answer.status, await answer.text(), answer.headers

    async def text(self, place: str = "") -> str:
        code, text, _ = await self.get(place)
        assert code == 200
        return text


async def message(answer: aiohttp.ClientResponse) -> bytes:
    """The next message of the live part, without those that only say that nothing has changed."""
    while (found := await answer.content.readuntil(b"\n\n")).startswith(b"event: seen"):
        pass
    return found


Open = Callable[[], Any]


@pytest.fixture
def site(cluster: Cluster) -> Open:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Site]:
        changes = Changes()
        async with serving(Session(cluster, Flags()), changes, 0) as address, aiohttp.ClientSession() as client:
            yield Site(address, changes, client)

    return opened


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{}", "127.0.0.1", "127.0.0.1:1", "", "[::1]:{}"])
async def test_another_host_header_gets_nothing(site: Open, host: str):
    async with site() as page:
        for place in ("", OF_WEB, "live/", "style.css"):
            code, text, _ = await page.get(place, headers={"Host": host.format(page.port)})
            assert (code, text) == (403, "open the address that kubectl vmherd ui has printed\n")
        assert (await page.get(headers={"Host": f"localhost:{page.port}"}))[0] == 200


async def test_only_the_token_opens_the_page_and_each_answer_forbids_foreign_scripts(site: Open):
    async with site() as page, site() as other:
        token = page.address.split("/")[3]
        assert len(token) >= 32
        assert token not in other.address
        for wrong in ("", "favicon.ico", f"{token[:-1]}/", f"{token}x/", "live/", "%ff/", f"{token.swapcase()}/"):
            assert (await page.get(f"../{wrong}"))[0] == 403, wrong
        assert (await page.client.post(page.address)).status == 405
        for place, wanted in (("", 200), ("default/..%2fkube-system/web", 404), ("style.css", 200), ("script.js", 200)):
            code, text, headers = await page.get(place)
            assert code == wanted
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; ")
            assert "unsafe" not in policy
            assert "<script>" not in text


async def test_it_listens_on_loopback_only_and_a_busy_port_is_one_line(cluster: Cluster, site: Open):
    async with site() as page:
        with socket.create_server(("127.0.0.2", page.port)):
            pass
        with pytest.raises(Failed, match=f"cannot listen on 127.0.0.1:{page.port}: address already in use; --port=0"):
            async with serving(Session(cluster, Flags()), Changes(), page.port):
                pass


async def test_the_browser_gets_a_private_file_that_leads_to_the_page_and_no_token(site: Open, tmp_path: Path):
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\nf="${{1#file://}}"\n{{ echo "$@"; stat -c %a "$f"; cat "$f"; }} > {seen}\n')
    browser.chmod(0o755)
    async with site() as page:
        with redirect_to(page.address) as file:
            webbrowser.GenericBrowser([str(browser), "%s"]).open(file)
            arguments, mode, content = seen.read_text().splitlines()
        assert page.address.split("/")[3] not in arguments
        assert mode == "600"
        assert (await page.client.get(re.findall('url=([^"]*)', content)[0])).status == 200
    assert not Path(arguments.removeprefix("file://")).exists()


async def test_the_pages_show_all_objects_and_one_with_its_vms(cluster: Cluster, site: Open):
    states.pool_in_update(cluster)
    async with site() as page:
        fleet = await page.text()
        assert f'<td data-name="Name"><a href="/{page.address.split("/")[3]}/{OF_WEB}">vmpool/web</a></td>' in fleet
        text = await page.text(OF_WEB)
        tiles = re.findall(r'class="(tile [^"]*)" data-name="([^"]*)"', text)
        names = [f"web-{number}" for number in range(4)]
        classes = ["tile bad", *["tile good outdated"] * 2, "tile good"]
        assert tiles == list(zip(classes, [*names[1:], names[0]], strict=True)), "sick VMs come first"
        assert '<progress value="3" max="4" aria-label="3 of 4 VMs are available">' in text
        assert "revision 3, v2, node-1" in text
        assert "new VMs have been updated..." in text
        undo = "kubectl vmherd rollout undo vmpool/web -n default"
        copy = '<span class="copy" data-label="{}" data-command="{}"></span>'
        assert f"<dt>try</dt><dd>{undo}{copy.format('copy', undo)}</dd>" in text
        assert copy.format("console", "virtctl console web-1 -n default") in text
        assert "Leader: none" in text


async def test_the_page_shows_the_warnings_of_the_api_server(cluster: Cluster, site: Open):
    states.pool_at_rest(cluster)
    text = 'unknown field "spec.template.spec.domain.cpu.core"'
    about = {"involvedObject": {"uid": "uid-of-the-pool"}, "reason": API_WARNING, "message": text}
    cluster.put(EVENTS, {"metadata": {"namespace": "default", "name": "web.1"}, **about, "lastTimestamp": None})
    async with site() as page:
        assert f"<dt>wrong</dt><dd>{html.escape(text)} (" in await page.text(OF_WEB)


async def test_a_look_reads_nothing_twice(cluster: Cluster, site: Open):
    states.pool_in_update(cluster)
    async with site() as page:
        await page.text(OF_WEB)
    reads = Counter(cluster.server.requests)
    assert {request: number for request, number in reads.items() if number > 1} == {}
    assert {LEASES, EVENTS, VMS} <= {request.resource for request in reads}


async def test_texts_in_objects_are_no_markup(cluster: Cluster, site: Open):
    states.pool_in_update(cluster)
    hostile = {"type": "ReplicaFailure", "status": "True", "message": HOSTILE}
    status = {"conditions": [hostile], "printableStatus": HOSTILE, "updatedReplicas": 1}
    cluster.server.change(POOL, ObjectKey("default", "web"), {"status": status})
    cluster.server.change(VMS, ObjectKey("default", "web-1"), {"status": {"printableStatus": HOSTILE}})
    async with site() as page:
        for place in ("", OF_WEB):
            text = await page.text(place)
            assert "alert(1)" in text
            assert not re.search(r"<script>|<img|\u202e|data: x\n", text)
    owner = pool_builders.pool()
    situation = situation_from_status(POOLS, POOL.group, owner, owner.status)
    happened = dict.fromkeys(("type", "reason", "message", "lastTimestamp"), HOSTILE)
    top = Top([HOSTILE], HOSTILE, HOSTILE)
    main = object_page(situation, [Reason(topic=HOSTILE, text=HOSTILE)], [happened], top, [fact(NOW, HOSTILE, HOSTILE)])
    assert not re.search(r"<script>|<img|\u202e|\n", main)
    assert tag("a", "x", href=HOSTILE).count('"') == 2


@pytest.mark.parametrize("place", ["", OF_WEB])
async def test_an_error_is_one_line_and_the_page_recovers(cluster: Cluster, site: Open, place: str):
    states.pool_at_rest(cluster)
    for error in (Forbidden("you may not", code=403, reason="Forbidden"), ServerError("it rests", code=500)):
        cluster.answer_with(error)
        async with site() as page:
            assert re.search(f'<p class="error" role="alert">[^<]*{error}[^<]*</p>', await page.text(place))
            cluster.server.fault_for = lambda request: None
            assert "vmpool/web" in await page.text(place)
            assert "Error from server (NotFound): " in await page.text(f"{OF_WEB}-2")
            assert "there is no type &#x27;pods&#x27;" in await page.text("default/pods/web")


async def test_what_the_user_may_not_read_is_named(cluster: Cluster, site: Open):
    states.pool_at_rest(cluster)
    cluster.forbidden = {"events", "virtualmachineinstances"}
    async with site() as page:
        text = await page.text(OF_WEB)
        for name in cluster.forbidden:
            assert text.index(f"Not everything is shown: {name} is forbidden") < text.index("<h1>"), "at the top"
        assert 'data-name="web-0"' in text
        cluster.forbidden = {"leases"}
        assert "Leader: not known here, because you may not read leases" in await page.text()


async def test_the_page_says_what_happened(cluster: Cluster, site: Open):
    SCENES["history"](cluster)
    async with site() as page:
        text = await page.text(OF_WEB)
        assert re.search(r"<h2>History</h2>.*<b>SuccessfulDelete</b> \(2 times\) Deleted VM web-1.*<b>Scaled</b>", text)


async def test_sick_objects_come_first_and_no_full_bar_hides_that_no_vm_is_available(cluster: Cluster, site: Open):
    for name, sick in (("api", 0), ("web", 3), ("zoo", 0)):
        states.large_pool(cluster, 3, sick=sick, name=name)
    async with site() as page:
        rows = re.findall(r'data-name="Name"><a[^>]*>([^<]*)</a>', await page.text())
        assert rows == ["vmpool/web", "vmpool/api", "vmpool/zoo"]
        assert '<progress value="0" max="3"' in await page.text(OF_WEB)


async def test_the_live_part_is_sent_only_when_it_changes(
    cluster: Cluster, site: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("plugin.ui.server.QUIET_S", 0.01)
    monkeypatch.setattr("plugin.ui.server.SLOWEST_S", 0.01)
    states.pool_at_rest(cluster)

    def fail() -> None:
        cluster.server.change(VMS, ObjectKey("default", "web-0"), {"status": {"printableStatus": "Paused"}})

    cluster.on_read = [*[lambda: None] * 3, fail]
    async with site() as page, page.client.get(f"{page.address}live/{OF_WEB}") as answer:
        assert answer.content_type == "text/event-stream"
        assert (await message(answer)).startswith(b"data: <h1>vmpool/web ")
        assert b"Paused" in await message(answer)
        monkeypatch.setattr("plugin.ui.server.SLOWEST_S", 600)
        await asyncio.sleep(0.05)
        cluster.server.change(VMS, ObjectKey("default", "web-1"), {"status": {"printableStatus": "Provisioning"}})
        page.changes.note()
        assert b"Provisioning" in await message(answer)


@pytest.mark.parametrize("is_down", [False, True])
async def test_while_the_server_says_nothing_the_page_stays_and_says_since_when(
    cluster: Cluster, site: Open, monkeypatch: pytest.MonkeyPatch, is_down: bool
):
    for name in ("ui.server.QUIET_S", "ui.server.SLOWEST_S", "commands.watching.INTERVAL_S"):
        monkeypatch.setattr(f"plugin.{name}", 0.01)
    states.pool_at_rest(cluster)
    answer = cluster.request
    answers = asyncio.Event()

    async def hang(*args: Any, **more: Any) -> bytes:
        if not answers.is_set() and is_down:
            raise TransportError("cannot connect\nevent: x", sent=False)
        await answers.wait()
        return await answer(*args, **more)

    async with site() as page, page.client.get(f"{page.address}live/{OF_WEB}") as live:
        shown = await message(live)
        monkeypatch.setattr("plugin.commands.watching.SILENT_S", 0.05)
        monkeypatch.setattr("plugin.ui.server.SILENT_S", 0.05)
        monkeypatch.setattr(cluster, "request", hang)
        why = b": cannot connect?event: x" if is_down else b""
        silence = await message(live)
        assert re.fullmatch(rb"event: silence\ndata: no answer since \ds%b\n\n" % re.escape(why), silence)
        assert re.search(r'role="alert">.*(cannot connect|no answer from the API server)', await page.text(OF_WEB))
        answers.set()
        while (last := await message(live)).startswith(b"event: silence"):
            pass
        assert last == shown
