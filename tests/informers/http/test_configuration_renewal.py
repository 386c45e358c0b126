"""Credentials follow changes of their files, and an exec plugin that hangs does not stop other work."""

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import trustme

from informers.errors import TransportError, Unauthorized
from informers.http import configuration, exec_plugin
from informers.http.client import ApiClient, open_client
from informers.http.configuration import ConfigurationError, Credentials, load_credentials
from tests.informers.faultserver import FaultServer, answer, client_of, listening, tls_of, write_kubeconfig
from tests.informers.subjects import CONFIGMAPS, key


class Cluster:
    """A cluster whose certificate authority changes. The authority `old` signed the first server certificate, and `new`
    signed the second one.
    """

    def __init__(self, ca_file: Path, client: ApiClient, credentials: Credentials, addresses: tuple[str, str]) -> None:
        self.ca_file = ca_file
        self.client = client
        self.credentials = credentials
        self.addresses = addresses

    def replace_server(self) -> None:
        self.credentials.host = self.addresses[1]

    async def get(self) -> None:
        await self.client.get(CONFIGMAPS, key("a"))


@asynccontextmanager
async def rotating(tmp_path: Path) -> AsyncIterator[tuple[Cluster, trustme.CA]]:
    old, new, ca_file = trustme.CA(), trustme.CA(), tmp_path / "ca.crt"
    old.cert_pem.write_to_path(str(ca_file))
    async with listening(FaultServer(), tls=tls_of(old)) as first, listening(FaultServer(), tls=tls_of(new)) as second:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", first, **{"certificate-authority": str(ca_file)})
        credentials = await load_credentials(str(kubeconfig))
        async with open_client(credentials, user_agent="tests") as client:
            cluster = Cluster(ca_file, client, credentials, (first, second))
            await cluster.get()
            yield cluster, new


async def test_after_a_certificate_error_the_client_trusts_a_changed_authority(tmp_path: Path):
    async with rotating(tmp_path) as (cluster, new):
        new.cert_pem.write_to_path(str(cluster.ca_file))
        cluster.replace_server()
        await cluster.get()


async def test_a_watch_trusts_a_changed_authority_at_its_second_attempt(tmp_path: Path):
    async with rotating(tmp_path) as (cluster, new):
        new.cert_pem.write_to_path(str(cluster.ca_file))
        cluster.replace_server()
        with pytest.raises(TransportError, match="cannot trust"):
            async with cluster.client.stream("/api/v1/configmaps", params={}, idle_timeout_s=1):
                pass
        async with cluster.client.stream("/api/v1/configmaps", params={}, idle_timeout_s=1):
            pass


async def test_changed_files_are_found_each_minute_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with rotating(tmp_path) as (cluster, new):
        before = cluster.credentials.ssl
        new.cert_pem.write_to_path(str(cluster.ca_file))
        await cluster.credentials.refresh_trust()
        assert cluster.credentials.ssl is before, "the last check was less than a minute ago"
        monkeypatch.setattr(configuration, "TRUST_CHECK_INTERVAL_S", 0.0)
        await cluster.credentials.refresh_trust()
        assert cluster.credentials.ssl is not before
        after = cluster.credentials.ssl
        await cluster.credentials.refresh_trust()
        assert cluster.credentials.ssl is after, "an unchanged file is not loaded again"


async def test_a_file_that_cannot_be_used_leaves_the_old_certificates_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(configuration, "TRUST_CHECK_INTERVAL_S", 0.0)
    async with rotating(tmp_path) as (cluster, new):
        with structlog.testing.capture_logs() as logs:
            cluster.ca_file.write_text("-----BEGIN CERTIFICATE-----\nhalf")
            await cluster.get()
        assert [line["log_level"] for line in logs] == ["warning"]
        new.cert_pem.write_to_path(str(cluster.ca_file))
        cluster.replace_server()
        await cluster.get()


def hanging_plugin(tmp_path: Path) -> dict[str, object]:
    """The user of a kubeconfig with an exec plugin. The first run of the plugin returns a token, and each later run
    hangs.
    """
    api = "client.authentication.k8s.io/v1"
    status = f'{{"apiVersion": "{api}", "kind": "ExecCredential", "status": {{"token": "first"}}}}'
    hang = f"echo $$ > {tmp_path}/pid && exec sleep 60"
    script = f"test -e {tmp_path}/ran && {hang}; touch {tmp_path}/ran; printf '%s' '{status}'"
    return {"exec": {"apiVersion": api, "command": "sh", "args": ["-c", script]}}


async def test_an_exec_plugin_that_hangs_occupies_no_slot_and_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(configuration, "RELOAD_TIMEOUT_S", 0.3)
    server = FaultServer(answer(401), answer(201))
    async with client_of(server, tmp_path, user=hanging_plugin(tmp_path), max_inflight=1) as client:
        rejected = asyncio.create_task(client.create(CONFIGMAPS, "ns", b"{}"))
        while not server.requests:
            await asyncio.sleep(0.001)
        await client.create(CONFIGMAPS, "ns", b"{}")
        assert not rejected.done(), "the plugin still hangs"
        with pytest.raises(Unauthorized):
            await rejected
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_an_exec_plugin_that_hangs_at_the_start_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(configuration, "RELOAD_TIMEOUT_S", 0.1)
    (tmp_path / "ran").touch()
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", hanging_plugin(tmp_path))
    with pytest.raises(ConfigurationError, match="does an exec plugin hang"):
        await load_credentials(str(kubeconfig))


async def test_an_exec_plugin_on_a_terminal_may_ask_its_user_and_take_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(configuration, "RELOAD_TIMEOUT_S", 0.05)
    for module in (configuration, exec_plugin):
        monkeypatch.setattr(module, "is_interactive", lambda: True)
    api = "client.authentication.k8s.io/v1"
    status = f'{{"apiVersion": "{api}", "kind": "ExecCredential", "status": {{"token": "mine"}}}}'
    script = f"sleep 0.2; echo open the page, $KUBERNETES_EXEC_INFO >&2; printf '%s' '{status}'"
    user = {"exec": {"apiVersion": api, "command": "sh", "args": ["-c", script]}}
    credentials = await load_credentials(str(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", user)))
    assert await credentials.authorization() == "Bearer mine"
    said = capfd.readouterr().err
    assert said.startswith("open the page")
    assert '"interactive": true' in said


AUTHORITY = {"certificate-authority": "ca.crt"}


@pytest.mark.parametrize("asks", [True, False])
async def test_an_exec_plugin_gets_the_cluster_if_it_asks_and_never_a_terminal_if_it_wants_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
):
    monkeypatch.setattr(exec_plugin, "is_interactive", lambda: True)
    api = "client.authentication.k8s.io/v1"
    answer = f'{{"apiVersion": "{api}", "kind": "ExecCredential", "status": {{"token": "mine"}}}}'
    script = f"printf '%s' \"$KUBERNETES_EXEC_INFO\" > {tmp_path}/info; cat; printf '%s' '{answer}'"
    user = {"apiVersion": api, "command": "sh", "args": ["-c", script], "interactiveMode": "Never"}
    user["provideClusterInfo"] = asks
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "web"}}]
    server = "http://127.0.0.1:1"
    file = write_kubeconfig(tmp_path / "kubeconfig", server, {"exec": user}, extensions=extensions, **AUTHORITY)
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    credentials = await load_credentials(str(file))
    assert await credentials.authorization() == "Bearer mine"
    data = b64encode((tmp_path / "ca.crt").read_bytes()).decode()
    info = {"server": server, "certificate-authority-data": data, "config": {"audience": "web"}}
    cluster = {"cluster": info} if asks else {}
    assert json.loads((tmp_path / "info").read_text())["spec"] == {"interactive": False, **cluster}


async def test_an_exec_plugin_that_needs_a_terminal_is_an_error_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(exec_plugin, "is_interactive", lambda: False)
    user = {"apiVersion": "client.authentication.k8s.io/v1", "command": "ask", "interactiveMode": "Always"}
    with pytest.raises(ConfigurationError, match="ask needs a terminal"):
        await load_credentials(str(write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", {"exec": user})))


async def test_a_reload_goes_on_if_the_request_that_began_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    may_load = asyncio.Event()
    async with listening(FaultServer()) as url:
        loaded = await load_credentials(str(write_kubeconfig(tmp_path / "kubeconfig", url)))
        source = loaded._reload

        async def slow() -> configuration.Loaded:
            await may_load.wait()
            return await source()

        credentials = Credentials(await source(), slow)
        write_kubeconfig(tmp_path / "kubeconfig", url, {"token": "second"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await credentials.renew("Bearer secret")
        may_load.set()
        await credentials.renew("Bearer secret")
        assert await credentials.authorization() == "Bearer second"
