import gzip
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from controller.config.types import Address
from controller.metrics.registry import Metrics, Page
from controller.server.authorization import Denial
from controller.server.certificates import FileCertificate
from controller.server.debug import describe_tasks
from controller.server.http import BindError, Checks, HttpServer, Secure
from tests.controller.server.serving import ANY_PORT, allow_all, https, make_server, serving


def passing() -> str | None:
    return None


def not_yet() -> str | None:
    return "not yet"


def raising() -> str | None:
    raise RuntimeError("no idea")


class ProbeClient:
    def __init__(self, server: HttpServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        answer = await self.answer(path, **headers)
        return answer.status, (await answer.read()).decode()

    async def answer(self, path: str, *, method: str = "GET", **headers: str) -> aiohttp.ClientResponse:
        address = self.server.metrics.bound if path.startswith("/metrics") else self.server.health.bound
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self._session.request(method, f"http://{address}{path}", headers=sent)
        await answer.read()
        return answer


@asynccontextmanager
async def probing(**settings: Any) -> AsyncIterator[ProbeClient]:
    async with (
        serving(**settings) as server,
        aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"}) as session,
    ):
        yield ProbeClient(server, session)


OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize(
    ("path", "live", "ready", "expected"),
    [
        ("/healthz", {"loop": passing}, {}, (200, "ok")),
        ("/livez", {"loop": passing}, {}, (200, "ok")),
        ("/readyz", {}, {"caches": passing}, (200, "ok")),
        ("/healthz", {}, {"caches": not_yet}, (200, "ok")),
        ("/readyz", {}, {"caches": not_yet, "lease": passing},
         (500, "[+]ping ok\n[-]caches failed: not yet\n[+]lease ok\nreadyz check failed\n")),
        ("/healthz?verbose", {"loop": passing}, {}, (200, "[+]ping ok\n[+]loop ok\nhealthz check passed\n")),
        ("/readyz?exclude=caches&exclude=lease&verbose", {}, {"caches": raising, "lease": not_yet},
         (200, "[+]ping ok\n[+]caches excluded: ok\n[+]lease excluded: ok\nreadyz check passed\n")),
        ("/readyz/caches", {}, {"caches": passing, "lease": not_yet}, (200, "ok")),
        ("/readyz/ping", {}, {"lease": not_yet}, (200, "ok")),
        ("/readyz/lease", {}, {"lease": not_yet}, (500, "[-]lease failed: not yet\nreadyz check failed\n")),
        ("/readyz/nonsense", {}, {}, (404, "this check does not exist\n")),
        ("/livez", {"loop": raising}, {},
         (500, "[+]ping ok\n[-]loop failed: the check raised RuntimeError('no idea')\nlivez check failed\n")),
        ("/readyz?exclude=cashes&verbose", {}, {"caches": passing},
         (200, "[+]ping ok\n[+]caches ok\nwarn: some health checks cannot be excluded: no matches for \"cashes\"\n"
               "readyz check passed\n")),
    ],
)  # fmt: skip
async def test_a_probe_answers_with_its_checks(path: str, live: Checks, ready: Checks, expected: tuple[int, str]):
    async with probing(live=live, ready=ready) as client:
        assert await client.get(path) == expected


@pytest.mark.parametrize(
    ("headers", "media_type", "parse"),
    [
        ({}, "text/plain; version=", parse_text),
        ({"Accept": f"{OPENMETRICS}, text/plain;q=0.5"}, OPENMETRICS, parse_openmetrics),
    ],
    ids=["by default", "OpenMetrics if the scraper asks for it"],
)
async def test_the_metrics_page_is_text_of_prometheus(headers: dict[str, str], media_type: str, parse: Any):
    async with probing() as client:
        answer = await client.answer("/metrics", **headers)
        body = (await answer.read()).decode()
    assert answer.headers["Content-Type"].startswith(media_type)
    assert "vmherd_build_info" in {family.name for family in parse(body)}


COMPRESSED, PLAIN = ["gzip", "deflate, gzip;q=0.5", "*"], ["identity", "gzip;q=0", "gzip; q=0.0, br", ""]


@pytest.mark.parametrize("accepted", [*COMPRESSED, *PLAIN])
async def test_the_page_is_compressed_for_clients_that_accept_gzip(accepted: str):
    async with probing() as client:
        answer = await client.answer("/metrics", Accept_Encoding=accepted)
        body = await answer.read()
    compressed = accepted in COMPRESSED
    assert ("Content-Encoding" in answer.headers) == compressed
    page = gzip.decompress(body) if compressed else body
    assert b"vmherd_build_info" in page


async def test_metrics_and_probes_are_served_only_at_their_own_address():
    async with probing() as client, aiohttp.ClientSession() as session:
        health, metrics = client.server.health.bound, client.server.metrics.bound
        assert health != metrics
        for url in (f"http://{health}/metrics", f"http://{metrics}/healthz", f"http://{health}/debug/tasks"):
            async with session.get(url) as answer:
                assert answer.status == 404


async def test_a_part_without_an_address_is_not_served():
    async with probing(metrics=None) as client:
        assert client.server.metrics.bound is None
        assert (await client.get("/healthz"))[0] == 200
    async with probing(health=None, metrics=None) as client:
        assert (client.server.health.bound, client.server.metrics.bound) == (None, None)


@pytest.fixture
def taken() -> Any:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield Address("127.0.0.1", holder.getsockname()[1])


@pytest.mark.parametrize(
    ("part", "flag"), [("health", "--health-probe-bind-address"), ("metrics", "--metrics-bind-address")]
)
async def test_a_port_in_use_is_an_error_of_one_line_at_the_start(part: str, flag: str, taken: Address):
    server = make_server(**{part: taken})
    with pytest.raises(BindError) as caught:
        await server.open()
    assert str(caught.value) == (
        f"cannot listen on {taken}: address already in use; {flag} sets another address, or 0 for none"
    )
    assert (server.health.bound, server.metrics.bound) == (None, None)


async def test_an_unknown_host_is_an_error_of_one_line():
    server = make_server(health=Address("no-such-host.invalid", 8081))
    with pytest.raises(BindError, match=r"^cannot listen on no-such-host\.invalid:8081: \w.*; --health"):
        await server.open()


async def test_debug_pages_exist_only_if_they_are_enabled():
    debug: dict[str, Callable[[], str]] = {"tasks": describe_tasks, "queues": lambda: "none\n"}
    async with probing(debug=debug) as client:
        assert await client.get("/debug/queues") == (200, "none\n")
        status, tasks = await client.get("/debug/tasks")
    assert status == 200
    assert re.search(r"\w+ \(\w+\.py:\d+\)", tasks)
    async with probing() as client:
        assert (await client.get("/debug/tasks"))[0] == 404


# HTTPS


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]


async def ask(server: HttpServer, *, scheme: str = "https", method: str = "GET", **headers: str) -> Answer:
    async with aiohttp.ClientSession() as session:
        url = f"{scheme}://{server.metrics.bound}/metrics"
        async with session.request(method, url, headers=headers, ssl=False) as answer:
            return Answer(answer.status, await answer.read(), answer.headers)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def allow_jane(authorization: str) -> Denial | None:
    return None if authorization == "Bearer jane" else Denial(401 if not authorization else 403, "only Jane may")


async def test_metrics_can_be_served_over_https():
    async with serving(secure=https()) as server:
        answer = await ask(server)
        assert answer.status == 200
        assert b"vmherd_build_info" in answer.body
        with pytest.raises(aiohttp.ClientError):
            await ask(server, scheme="http")


async def test_a_denied_client_gets_one_line_and_no_metrics():
    async with serving(secure=https(allow_jane)) as server:
        anonymous, bob, jane = [await ask(server, **sent) for sent in ({}, bearer("bob"), bearer("jane"))]
    assert [answer.status for answer in (anonymous, bob, jane)] == [401, 403, 200]
    assert anonymous.body == bob.body == b"only Jane may\n"
    assert anonymous.headers["WWW-Authenticate"] == "Bearer"
    assert "WWW-Authenticate" not in bob.headers


async def test_a_head_request_needs_the_same_permission():
    async with serving(secure=https(allow_jane)) as server:
        assert (await ask(server, method="HEAD")).status == 401
        assert (await ask(server, method="HEAD", **bearer("jane"))).status == 200


async def test_the_page_is_not_made_for_a_denied_client():
    pages = 0
    metrics = Metrics(CollectorRegistry())

    def page() -> Page:
        nonlocal pages
        pages += 1
        return metrics.page()

    async with serving(secure=https(allow_jane), page=page) as server:
        await ask(server)
        assert pages == 0
        await ask(server, **bearer("jane"))
        assert pages == 1


async def test_probes_need_neither_a_token_nor_https():
    async with probing(secure=https(allow_jane)) as client:
        assert await client.get("/healthz") == (200, "ok")


async def test_a_missing_certificate_is_an_error_of_one_line_at_the_start(tmp_path: Path):
    missing = FileCertificate(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    server = make_server(secure=Secure(missing, allow_all))
    with pytest.raises(BindError) as caught:
        await server.open()
    assert str(caught.value) == (
        f"cannot serve HTTPS on {ANY_PORT}: cannot read {tmp_path}/tls.crt: no such file or directory; "
        "--metrics-cert-file and --metrics-key-file name a certificate and its key"
    )
    assert (server.health.bound, server.metrics.bound) == (None, None)
