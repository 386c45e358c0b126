"""Credentials follow changes of their files, and an exec plugin that hangs does not stop other work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import trustme

from informers.errors import TransportError
from informers.http import configuration
from informers.http.client import ApiClient, open_client
from informers.http.configuration import Credentials, load_credentials
from informers.http.kubeconfig import ConfigurationError
from tests.informers.faultserver import FaultServer, listening, tls_of, write_kubeconfig
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


async def test_a_reload_goes_on_if_the_request_that_began_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    may_load = asyncio.Event()
    url = "https://127.0.0.1:1"
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


async def test_a_reload_never_gives_the_credentials_of_one_server_to_another(tmp_path: Path):
    file = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", {"token": "first"})
    credentials = await load_credentials(str(file))
    write_kubeconfig(file, "https://127.0.0.1:2", {"token": "second"})
    with pytest.raises(ConfigurationError, match=r"now for https://127\.0\.0\.1:2: a restart is needed"):
        await credentials.renew("Bearer first")
    assert await credentials.authorization() == "Bearer first"
