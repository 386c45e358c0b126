import asyncio
import json
import socket
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from informers import errors
from informers.errors import GateClosed, TransportError
from informers.http.client import ApiClient, open_client
from informers.http.configuration import load_credentials
from informers.instruments import Instruments
from informers.objects import LONGEST_PAGE, PatchType
from tests.informers.faultserver import (
    Answer,
    FaultServer,
    answer,
    client_of,
    cut,
    hang,
    listening,
    when,
    write_kubeconfig,
)
from tests.informers.subjects import CONFIGMAPS, failure, key

PATH = "/api/v1/namespaces/ns/configmaps"


async def write(client: ApiClient) -> None:
    await client.create(CONFIGMAPS, "ns", b"{}")


async def test_create_sends_the_body_with_headers_and_returns_the_answers_body(tmp_path: Path):
    server = FaultServer(answer(201, b'{"kind":"ConfigMap"}'))
    async with client_of(server, tmp_path, tls=True) as client:
        assert await client.create(CONFIGMAPS, "ns", b'{"data":{}}') == b'{"kind":"ConfigMap"}'
    [request] = server.requests
    assert (request.method, request.path, request.body) == ("POST", PATH, b'{"data":{}}')
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept"] == "application/json"
    assert request.headers["user-agent"] == "tests/1"
    assert request.headers["authorization"] == "Bearer secret"


async def test_each_method_uses_its_verb_path_and_media_type(tmp_path: Path):
    server = FaultServer()
    async with client_of(server, tmp_path) as client:
        await client.get(CONFIGMAPS, key("a"))
        await client.patch(CONFIGMAPS, key("a"), b"{}", content_type=PatchType.MERGE, subresource="status")
        await client.patch(CONFIGMAPS, key("a/b c"), b"[]", content_type=PatchType.JSON)
        await client.request("GET", PATH, params={"labelSelector": "a in (b,c),d!=e", "limit": "500"})
    get, patch, odd, listed = server.requests
    assert (get.method, get.path, get.body) == ("GET", f"{PATH}/a", b"")
    assert (patch.method, patch.path, patch.headers["content-type"]) == ("PATCH", f"{PATH}/a/status", PatchType.MERGE)
    assert odd.path == f"{PATH}/a%2Fb%20c"
    assert listed.path == f"{PATH}?labelSelector=a+in+(b,c),d!%3De&limit=500"


async def test_a_delete_sends_uid_and_version_as_preconditions(tmp_path: Path):
    server = FaultServer()
    async with client_of(server, tmp_path) as client:
        await client.delete(CONFIGMAPS, key("a"), uid="1234", propagation="Foreground")
        await client.delete(CONFIGMAPS, key("a"), uid="1234", version="42")
        await client.delete(CONFIGMAPS, key("a"))
    assert {(request.method, request.path) for request in server.requests} == {("DELETE", f"{PATH}/a")}
    options = {"kind": "DeleteOptions", "apiVersion": "v1"}
    assert [json.loads(request.body) for request in server.requests] == [
        {**options, "propagationPolicy": "Foreground", "preconditions": {"uid": "1234"}},
        {**options, "propagationPolicy": "Background", "preconditions": {"uid": "1234", "resourceVersion": "42"}},
        {**options, "propagationPolicy": "Background", "preconditions": {}},
    ]


async def test_a_page_of_metadata_that_is_too_long_is_not_read_to_its_end(tmp_path: Path):
    server = FaultServer(answer(200, b" " * (2 * LONGEST_PAGE)), answer(200, b"{}"))
    async with client_of(server, tmp_path) as client:
        with pytest.raises(
            errors.AnswerTooLarge, match=r"the answer to /api/v1/namespaces/ns/configmaps is longer than"
        ):
            await client.list_metadata(CONFIGMAPS, "ns", limit=500)
        assert await client.list_metadata(CONFIGMAPS, "ns", limit=10) == b"{}"
    assert {each.headers["accept-encoding"] for each in server.requests} == {"identity"}


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", errors.StatusError),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (503, "ServiceUnavailable", errors.ServerError),
        (504, "Timeout", errors.ServerTimeout),
    ],
)
async def test_each_error_code_has_its_exception_with_the_servers_message(
    tmp_path: Path, code: int, reason: str, kind: type[errors.StatusError]
):
    async with client_of(FaultServer(answer(code, failure(code, reason, "because"))), tmp_path) as client:
        with pytest.raises(errors.StatusError) as caught:
            await client.get(CONFIGMAPS, key("a"))
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason, str(caught.value)) == (code, reason, "because")


@pytest.mark.parametrize(("code", "retry_after"), [(429, "0"), (503, "0"), (429, "1")])
async def test_a_request_is_repeated_after_429_and_503_when_retry_after_is_over(
    tmp_path: Path, code: int, retry_after: str
):
    server = FaultServer(answer(code, retry_after=retry_after), answer(code, retry_after="0"), answer(200, b"done"))
    async with client_of(server, tmp_path) as client:
        started = asyncio.get_running_loop().time()
        assert await client.create(CONFIGMAPS, "ns", b"{}") == b"done"
        assert asyncio.get_running_loop().time() - started >= int(retry_after)
    assert len(server.requests) == 3


async def test_the_fourth_429_is_raised(tmp_path: Path):
    server = FaultServer(answer(429, failure(429, "TooManyRequests", "busy"), retry_after="0"))
    async with client_of(server, tmp_path) as client:
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.get(CONFIGMAPS, key("a"))
    assert caught.value.retry_after_s == 0
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "refusal",
    [
        answer(503),
        answer(429),
        answer(503, retry_after="60"),
        answer(500, retry_after="0"),
        answer(504, retry_after="0"),
    ],
)
async def test_other_errors_are_not_retried(tmp_path: Path, refusal: bytes):
    server = FaultServer(refusal)
    async with client_of(server, tmp_path) as client:
        with pytest.raises(errors.StatusError):
            await client.create(CONFIGMAPS, "ns", b"{}")
    assert len(server.requests) == 1


@pytest.mark.parametrize(("has_kubeconfig", "tries"), [(True, 2), (False, 1)], ids=["second 401", "no reload"])
async def test_a_401_that_a_reload_does_not_help_is_raised(tmp_path: Path, has_kubeconfig: bool, tries: int):
    server = FaultServer(answer(401, failure(401, "Unauthorized", "Unauthorized")))
    async with client_of(server, tmp_path) as client:
        if not has_kubeconfig:
            (tmp_path / "kubeconfig").unlink()
        with pytest.raises(errors.Unauthorized):
            await client.get(CONFIGMAPS, key("a"))
    assert len(server.requests) == tries


@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", "Connection refused"), ("nowhere.invalid", r"cannot connect to nowhere\.invalid:")]
)
async def test_without_a_connection_sent_is_false(tmp_path: Path, host: str, why: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    credentials = await load_credentials(str(write_kubeconfig(tmp_path / "kubeconfig", f"http://{host}:{port}")))
    async with open_client(credentials, user_agent="tests") as client:
        with pytest.raises(errors.TransportError, match=why) as caught:
            await client.create(CONFIGMAPS, "ns", b"{}")
    assert caught.value.sent is False
    assert "secret" not in str(caught.value)


async def half(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
    await writer.drain()
    await cut(writer)


@pytest.mark.parametrize(("reply", "why"), [(cut, "lost"), (half, "lost"), (hang, "in time")])
async def test_after_a_lost_connection_and_after_a_timeout_sent_is_true(tmp_path: Path, reply: Answer, why: str):
    async with client_of(FaultServer(reply), tmp_path) as client:
        with pytest.raises(errors.TransportError, match=why) as caught:
            await client.request("POST", PATH, body=b"{}", timeout_s=0.5)
    assert caught.value.sent is True


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_no_request_is_repeated_after_a_lost_connection(tmp_path: Path, method: str):
    """The server may have carried out the first request: it may have created an object, or restarted a VM."""
    server = FaultServer(answer(), cut)
    async with client_of(server, tmp_path) as client:
        await client.get(CONFIGMAPS, key("a"))
        with pytest.raises(errors.TransportError):
            await client.request(method, PATH, body=None if method == "GET" else b"{}")
    assert [request.method for request in server.requests] == ["GET", method]


@pytest.mark.parametrize(
    ("reply", "why"), [(answer(503), "the proxy answers 503"), (cut, "was lost"), (hang, "no answer")]
)
async def test_a_write_that_a_proxy_did_not_pass_on_was_not_sent(tmp_path: Path, reply: Answer, why: str):
    async with listening(FaultServer(reply)) as proxy:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "https://k8s.example:6443", **{"proxy-url": proxy})
        async with open_client(await load_credentials(str(kubeconfig)), user_agent="tests") as client:
            with pytest.raises(errors.TransportError, match=why) as caught:
                await client.request("POST", PATH, body=b"{}", timeout_s=0.2)
    assert caught.value.sent is False


async def test_max_inflight_limits_the_requests_in_flight(tmp_path: Path):
    may_answer = asyncio.Event()
    server = FaultServer(when(may_answer, answer()))
    async with client_of(server, tmp_path, max_inflight=3) as client, asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(write(client))
        while server.busy < 3:
            await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0.001)
        may_answer.set()
    assert server.busiest == 3
    assert len(server.requests) == 10


async def test_proxy_settings_in_the_environment_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with client_of(FaultServer(answer(200, b"direct")), tmp_path) as client:
        assert await client.get(CONFIGMAPS, key("a")) == b"direct"


async def test_cookies_are_not_kept(tmp_path: Path):
    server = FaultServer(answer(200, set_cookie="session=1"))
    async with client_of(server, tmp_path) as client:
        await client.get(CONFIGMAPS, key("a"))
        await client.get(CONFIGMAPS, key("a"))
    assert "cookie" not in server.requests[1].headers


async def test_each_sent_request_is_reported_with_its_code(tmp_path: Path):
    counted = create_autospec(Instruments, instance=True)
    server = FaultServer(answer(429, retry_after="0"), answer(201), answer(404), cut)
    async with client_of(server, tmp_path, instruments=counted) as client:
        await write(client)
        for request in (client.get(CONFIGMAPS, key("a")), write(client)):
            with pytest.raises((errors.NotFound, errors.TransportError)):
                await request
    finished = [each.kwargs for each in counted.request_finished.call_args_list]
    sent = [("POST", "429"), ("POST", "201"), ("GET", "404"), ("POST", "<error>")]
    assert [(each["verb"], each["code"]) for each in finished] == sent
    assert all(each["host"].startswith("127.0.0.1:") and 0 <= each["seconds"] < 60 for each in finished)
    host = finished[0]["host"]  # a 404 and a lost connection are not repeated
    counted.request_retried.assert_called_once_with(verb="POST", host=host, code="429")


async def test_a_cancelled_request_does_not_count_as_in_flight(tmp_path: Path):
    server = FaultServer(hang, answer())
    async with client_of(server, tmp_path, max_inflight=1) as client:
        task = asyncio.create_task(write(client))
        while not server.busy:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await write(client)
    assert len(server.requests) == 2


async def test_a_subresource_is_updated_with_put_and_may_answer_without_json(tmp_path: Path):
    server = FaultServer()
    async with client_of(server, tmp_path) as client:
        await client.update(CONFIGMAPS, key("a"), b"{}", subresource="restart")
    [request] = server.requests
    assert (request.method, request.path) == ("PUT", f"{CONFIGMAPS.path('ns', 'a')}/restart")
    assert request.headers["accept"] == "*/*", "virt-api answers 406 to a client that accepts only JSON"


# A write that the gate forbids never reaches the server, even if the gate closes while the write waits.


class Gate:
    """A gate that counts its calls. If the gate is closed, each call raises GateClosed. Call number `closes_at` raises
    GateClosed too.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.closed = False
        self.closes_at = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.closed or self.calls == self.closes_at:
            raise GateClosed("the gate is closed")


async def expect_closed(client: ApiClient) -> None:
    with pytest.raises(GateClosed):
        await write(client)


async def test_a_closed_gate_forbids_writes_and_allows_reads(tmp_path: Path):
    gate, server = Gate(), FaultServer()
    gate.closed = True
    async with client_of(server, tmp_path) as client:
        client.gate = gate
        for request in (
            write(client),
            client.delete(CONFIGMAPS, key("a"), uid="1"),
            client.patch(CONFIGMAPS, key("a"), b"{}", content_type=PatchType.MERGE),
        ):
            with pytest.raises(GateClosed):
                await request
        await client.get(CONFIGMAPS, key("a"))
    assert [request.method for request in server.requests] == ["GET"]
    assert gate.calls == 3


async def test_a_write_is_not_sent_if_the_gate_closes_while_it_waits_for_the_limit(tmp_path: Path):
    may_answer, gate = asyncio.Event(), Gate()
    server = FaultServer(when(may_answer, answer()))
    async with client_of(server, tmp_path, max_inflight=1) as client, asyncio.TaskGroup() as group:
        client.gate = gate
        first = group.create_task(write(client))
        while not server.busy:
            await asyncio.sleep(0.001)
        second = group.create_task(expect_closed(client))
        await asyncio.sleep(0.001)
        gate.closed = True
        may_answer.set()
    assert first.done()
    assert second.done()
    assert len(server.requests) == 1


async def test_a_gate_that_is_set_later_also_forbids_retries(tmp_path: Path):
    gate = Gate()

    async def close_and_refuse(writer: asyncio.StreamWriter) -> None:
        gate.closed = True
        writer.write(answer(429, retry_after="0"))

    server = FaultServer(close_and_refuse, answer())
    async with client_of(server, tmp_path) as client:
        client.gate = gate
        await expect_closed(client)
    assert len(server.requests) == 1


async def test_a_write_is_not_sent_if_the_gate_closes_after_the_connection_is_made(tmp_path: Path):
    gate, server = Gate(), FaultServer()
    gate.closes_at = 2
    async with client_of(server, tmp_path) as client:
        client.gate = gate
        with pytest.raises(TransportError) as caught:
            await write(client)
        assert caught.value.sent is False
        gate.closes_at = 0
        await write(client)
    assert [request.method for request in server.requests] == ["POST"]
