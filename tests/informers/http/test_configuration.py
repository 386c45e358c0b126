"""The sources of credentials, the error messages for invalid credentials, and the renewal of credentials."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
import trustme
import yaml

from informers.errors import TransportError, Unauthorized
from informers.http import configuration
from informers.http import pod as pod_module
from informers.http.client import ApiClient, open_client
from informers.http.configuration import Credentials, load_credentials
from informers.http.kubeconfig import ConfigurationError
from tests.informers.faultserver import (
    FaultServer,
    answer,
    client_of,
    credential,
    listening,
    script,
    tls_of,
    write_kubeconfig,
)
from tests.informers.subjects import CONFIGMAPS, key
from tests.programs import finished


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def write_contexts(path: Path, **namespaces: Any) -> Path:
    """Write a kubeconfig with these contexts. The first context is the current context."""
    write_kubeconfig(path, "http://127.0.0.1:8001")
    config = yaml.safe_load(path.read_text())
    [context] = config["contexts"]
    config["contexts"] = [
        {"name": name, "context": {**context["context"], **({"namespace": namespace} if namespace is not None else {})}}
        for name, namespace in namespaces.items()
    ]
    config["current-context"] = next(iter(namespaces))
    path.write_text(yaml.safe_dump(config))
    return path


async def test_the_context_sets_the_default_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_contexts(tmp_path / "a", mine="team-a", none=None, empty="")
    named = {context: (await load_credentials(str(path), context)).namespace for context in ("", "mine", "none")}
    assert named == {"": "team-a", "mine": "team-a", "none": "default"}
    assert (await load_credentials(str(path), "empty")).namespace == "default"
    monkeypatch.setenv("KUBECONFIG", f"{path}:{write_contexts(tmp_path / 'b', other='team-b')}")
    assert [(await load_credentials("", context)).namespace for context in ("mine", "other")] == ["team-a", "team-b"]


async def test_a_missing_configuration_is_an_error_of_one_line(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"no kubeconfig at .*/\.kube/config: set --kubeconfig or"):
        await load_credentials()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it names no cluster to use"),
        ("{", "is not YAML: line 1: expected"),
        ("a: b\n  s3cr3t: [}", "is not YAML: line 2: "),
        ('{"users": [{"user": {"token": 7}}]}', "Expected `str`, got `int` - at `$.users[0].user.token`"),
        ("[]", "is not a valid kubeconfig"),
        ("just words", "is not a valid kubeconfig"),
        (
            '{"contexts": [{"name": "d"}, {"name": "a"}, {"name": "c"}, {"name": "b"}], "current-context": "x"}',
            '"x" does not exist (contexts: d, a, c, b)',
        ),
        ('{"clusters": [], "contexts": []}', "it names no cluster to use"),
    ],
)
async def test_an_invalid_kubeconfig_is_an_error_of_one_line(tmp_path: Path, text: str, message: str):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        await load_credentials(str(path))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


async def test_simultaneous_rejections_reload_the_credentials_once(tmp_path: Path):
    user = script(f"printf x >> {tmp_path}/runs; printf '%s' '{credential('same')}'")
    async with client_of(FaultServer(answer(401)), tmp_path, user=user, tls=True) as client:
        answers = await asyncio.gather(*[client.get(CONFIGMAPS, key("a")) for _ in range(10)], return_exceptions=True)
    assert all(isinstance(error, Unauthorized) for error in answers)
    assert (tmp_path / "runs").read_text() == "xx"


class Pod:
    """The files and variables of a Pod's service account."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.token = directory / "token"
        self.ca = directory / "ca.crt"
        monkeypatch.setattr(configuration.kube_config.incluster_config, "SERVICE_TOKEN_FILENAME", str(self.token))
        monkeypatch.setattr(configuration.kube_config.incluster_config, "SERVICE_CERT_FILENAME", str(self.ca))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")


async def test_a_pod_uses_its_service_account_and_reloads_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pod = Pod(tmp_path, monkeypatch)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(pod.ca))
    pod.token.write_text("first\n")
    server = FaultServer(answer(), answer(401), answer())
    async with listening(server, tls=tls_of(authority)) as url:
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", url.rpartition(":")[2])
        credentials = await load_credentials()
        async with open_client(credentials, user_agent="tests") as client:
            await client.get(CONFIGMAPS, key("a"))
            pod.token.write_text("second\n")
            await client.get(CONFIGMAPS, key("a"))
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer first", "Bearer second"]


async def test_the_pod_sets_the_default_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pod = Pod(tmp_path, monkeypatch)
    trustme.CA().cert_pem.write_to_path(str(pod.ca))
    pod.token.write_text("token")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(pod_module, "NAMESPACE_FILE", tmp_path / "namespace")
    assert (await load_credentials()).namespace == "default"
    (tmp_path / "namespace").write_text("team-a\n")
    assert (await load_credentials()).namespace == "team-a"


async def test_a_pod_without_a_token_is_an_error_of_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Pod(tmp_path, monkeypatch)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationError, match="service account cannot be used"):
        await load_credentials()


async def test_an_untrusted_server_receives_no_request(tmp_path: Path):
    server = FaultServer()
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other-ca"))
    async with listening(server, tls=tls_of(trustme.CA())) as url:
        ca = {"certificate-authority": str(tmp_path / "other-ca")}
        credentials = await load_credentials(str(write_kubeconfig(tmp_path / "kubeconfig", url, **ca)))
        async with open_client(credentials, user_agent="tests") as client:
            with pytest.raises(TransportError, match="cannot trust the certificate") as caught:
                await client.create(CONFIGMAPS, "ns", b"{}")
    assert caught.value.sent is False
    assert server.requests == []


class Cluster(NamedTuple):
    """A cluster whose certificate authority changes: `new` signed the certificate of the server `second`."""

    ca_file: Path
    client: ApiClient
    credentials: Credentials
    new: trustme.CA
    second: str

    def change_authority(self) -> None:
        self.new.cert_pem.write_to_path(str(self.ca_file))

    def replace_server(self) -> None:
        self.change_authority()
        self.credentials.host = self.second

    async def get(self) -> None:
        await self.client.get(CONFIGMAPS, key("a"))


@asynccontextmanager
async def rotating(tmp_path: Path) -> AsyncIterator[Cluster]:
    old, new, ca_file = trustme.CA(), trustme.CA(), tmp_path / "ca.crt"
    old.cert_pem.write_to_path(str(ca_file))
    async with listening(FaultServer(), tls=tls_of(old)) as first, listening(FaultServer(), tls=tls_of(new)) as second:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", first, **{"certificate-authority": str(ca_file)})
        credentials = await load_credentials(str(kubeconfig))
        async with open_client(credentials, user_agent="tests") as client:
            cluster = Cluster(ca_file, client, credentials, new, second)
            await cluster.get()
            yield cluster


async def test_after_a_certificate_error_the_client_trusts_a_changed_authority(tmp_path: Path):
    async with rotating(tmp_path) as cluster:
        cluster.replace_server()
        await cluster.get()


async def test_a_watch_trusts_a_changed_authority_at_its_second_attempt(tmp_path: Path):
    async with rotating(tmp_path) as cluster:
        cluster.replace_server()
        with pytest.raises(TransportError, match="cannot trust"):
            async with cluster.client.stream("/api/v1/configmaps", params={}, idle_timeout_s=1):
                pass
        async with cluster.client.stream("/api/v1/configmaps", params={}, idle_timeout_s=1):
            pass


async def test_changed_files_are_found_each_minute_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with rotating(tmp_path) as cluster:
        before = cluster.credentials.ssl
        cluster.change_authority()
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
    async with rotating(tmp_path) as cluster:
        with structlog.testing.capture_logs() as logs:
            cluster.ca_file.write_text("-----BEGIN CERTIFICATE-----\nhalf")
            await cluster.get()
        assert [line["log_level"] for line in logs] == ["warning"]
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


# The module imports kubernetes_asyncio without its generated client. If this import fails, it imports the whole
# package. Each of these tests starts a new process, because a process keeps its imported modules.


LOAD = """
import asyncio, json, sys
from informers.http.configuration import load_credentials
host = asyncio.run(load_credentials(sys.argv[1])).host
print(json.dumps([host, [name for name in sys.modules if name.startswith("kubernetes_asyncio.client.")]]))
"""

REQUIRE_PACKAGE_CODE = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "kubernetes_asyncio.%s" and not hasattr(sys.modules["kubernetes_asyncio"], "__version__"):
            raise ImportError(name)
sys.meta_path.insert(0, Finder())
"""


def client_modules(program: str, tmp_path: Path) -> list[str]:
    """Run a program that loads credentials. Return the modules of the generated client that it imports."""
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://server:1")
    done = finished([sys.executable, "-c", program, str(kubeconfig)])
    host, modules = json.loads(done.stdout)
    assert host == "http://server:1"
    return list(modules)


def test_credentials_are_loaded_without_the_generated_client(tmp_path: Path) -> None:
    assert sorted(client_modules(LOAD, tmp_path)) == [
        "kubernetes_asyncio.client.configuration",
        "kubernetes_asyncio.client.exceptions",
    ]


@pytest.mark.parametrize("module", ["client.configuration", "config"])
def test_a_version_that_needs_its_package_code_is_imported_completely(module: str, tmp_path: Path) -> None:
    modules = client_modules(REQUIRE_PACKAGE_CODE % module + LOAD, tmp_path)
    assert "kubernetes_asyncio.client.models" in modules


def test_an_already_imported_package_is_used(tmp_path: Path) -> None:
    assert "kubernetes_asyncio.client.models" in client_modules("import kubernetes_asyncio\n" + LOAD, tmp_path)
