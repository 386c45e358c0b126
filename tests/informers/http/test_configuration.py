"""The sources of credentials, the error messages for invalid credentials, and the renewal of credentials."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from informers.errors import TransportError, Unauthorized
from informers.http import configuration
from informers.http import pod as pod_module
from informers.http.client import open_client
from informers.http.configuration import load_credentials
from informers.http.kubeconfig import ConfigurationError
from tests.informers import faultserver
from tests.informers.subjects import CONFIGMAPS, key

SERVER = "http://127.0.0.1:8001"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def write_contexts(path: Path, **namespaces: Any) -> Path:
    """Write a kubeconfig with these contexts. The first context is the current context."""
    faultserver.write_kubeconfig(path, SERVER)
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
    user = faultserver.script(f"printf x >> {tmp_path}/runs; printf '%s' '{faultserver.credential('same')}'")
    async with faultserver.client_of(
        faultserver.FaultServer(faultserver.answer(401)), tmp_path, user=user, tls=True
    ) as client:
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
    server = faultserver.FaultServer(faultserver.answer(), faultserver.answer(401), faultserver.answer())
    async with faultserver.listening(server, tls=faultserver.tls_of(authority)) as url:
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
    server = faultserver.FaultServer()
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other-ca"))
    async with faultserver.listening(server, tls=faultserver.tls_of(trustme.CA())) as url:
        ca = {"certificate-authority": str(tmp_path / "other-ca")}
        credentials = await load_credentials(str(faultserver.write_kubeconfig(tmp_path / "kubeconfig", url, **ca)))
        async with open_client(credentials, user_agent="tests") as client:
            with pytest.raises(TransportError, match="cannot trust the certificate") as caught:
                await client.create(CONFIGMAPS, "ns", b"{}")
    assert caught.value.sent is False
    assert server.requests == []
