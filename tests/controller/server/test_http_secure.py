from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from controller.metrics.registry import Metrics, Page
from controller.server.authorization import Denial
from controller.server.certificates import FileCertificate
from controller.server.http import BindError, HttpServer, Secure
from tests.controller.server.serving import ANY_PORT, allow_all, https, make_server, serving


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
    async with (
        serving(secure=https(allow_jane)) as server,
        aiohttp.ClientSession() as session,
        session.get(f"http://{server.health.bound}/healthz") as answer,
    ):
        assert (answer.status, await answer.text()) == (200, "ok")


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
