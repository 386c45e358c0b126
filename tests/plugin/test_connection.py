"""The flags of the connection: which cluster, which user, and which headers."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
import yaml

from informers.http.configuration import load_credentials
from informers.http.kubeconfig import ConfigurationError
from informers.http.proxies import proxy_for
from plugin.cli import verb_first
from plugin.completion import COMPLETION_S
from plugin.connection import connect
from plugin.flags import Flags
from tests.informers.faultserver import FaultServer, answer, credential, listening, script, tls_of, write_kubeconfig
from tests.informers.subjects import CONFIGMAPS
from tests.plugin.cluster import Cluster, Shell


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def kubeconfig_with_a_namespace(tmp_path: Path) -> str:
    """A kubeconfig whose context has the namespace `team-a`."""
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://here:1")
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = "team-a"
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def test_flags_leave_the_namespace_of_the_kubeconfig_and_a_server_needs_no_kubeconfig(tmp_path: Path):
    """`tests/informers/http/kubectl` compares what the flags choose with kubectl."""
    path = kubeconfig_with_a_namespace(tmp_path)
    assert (await load_credentials(path, server="HTTPS://elsewhere:2/", token="mine")).namespace == "team-a"
    assert (await load_credentials(path, user="a")).namespace == "team-a"
    assert (await load_credentials(server="http://elsewhere:2")).host == "http://elsewhere:2"
    with pytest.raises(ConfigurationError, match="the command line has to name a server"):
        await load_credentials(server="elsewhere")


async def test_an_unknown_cluster_user_or_context_is_named(tmp_path: Path):
    path = kubeconfig_with_a_namespace(tmp_path)
    for flag, name in (("cluster", "nowhere"), ("user", "missing"), ("context", "absent")):
        with pytest.raises(ConfigurationError, match=f'{flag} "{name}" does not exist'):
            await load_credentials(path, **{flag: name})


async def test_every_request_carries_the_impersonated_user_and_group(tmp_path: Path):
    server = FaultServer(answer(200, b"{}"))
    async with listening(server) as url:
        path = write_kubeconfig(tmp_path / "kubeconfig", url)
        async with connect(Flags(kubeconfig=str(path), overrides={"as_user": "jane", "as_groups": ("a",)})) as session:
            await session.request("GET", CONFIGMAPS.path("default", "x"))
    [request] = server.requests
    assert request.headers["impersonate-user"] == "jane"
    assert request.headers["impersonate-group"] == "a"
    assert request.headers["user-agent"].startswith("kubectl-vmherd/")


async def test_a_group_alone_cannot_be_impersonated(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="cannot be impersonated without a user: set `as` or --as"):
        await load_credentials(kubeconfig_with_a_namespace(tmp_path), as_groups=("a",))


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ("-n shop rollout status vmpool/web", "rollout status vmpool/web -n shop"),
        ("--context=a rollout status vmpool/web", "rollout status vmpool/web --context=a"),
        ("--help", "--help"),
        ("-n shop expose vmpool web --dry-run=client", "expose vmpool web --dry-run=client -n shop"),
        ("scale vmpool/web --dry-run=client", "scale vmpool/web --dry-run=client"),
        ("rollout -h", "rollout -h"),
    ],
)
def test_flags_of_the_connection_may_stand_before_the_command(given: str, moved: str):
    assert verb_first(given.split()) == moved.split()


PROXY = "http://proxy:3128"
API = "https://api.example.org:6443"


@pytest.mark.parametrize(
    ("address", "exceptions", "is_proxied"),
    [
        (API, "", True),
        (API, "*", False),
        (API, "example.org", False),
        (API, ".example.org", False),
        (API, "*.example.org", False),
        (API, "ample.org", True),
        (API, "api.example.org:6443, other.org", False),
        (API, "api.example.org:443", True),
        ("https://example.org", ".example.org", True),
        ("https://10.1.2.3:6443", "10.0.0.0/8", False),
        ("https://10.1.2.3:6443", "10.1.2.4", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "[fd00::1]:443", True),
        ("https://10.1.2.3:6443", "2.3", True),
        ("https://api.example.org", "api.example.org:443", False),
        (API, "*ple.org", True),
        (API, "10.0.0.0/99, :6443, ,", True),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example.org", "", False),
    ],
)
def test_an_address_has_the_proxy_of_its_scheme_unless_no_proxy_names_it(
    address: str, exceptions: str, is_proxied: bool
):
    found = proxy_for(address, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions})
    assert found == (PROXY if is_proxied else None)


def test_lower_case_and_a_proxy_without_a_scheme():
    assert proxy_for(API, {"https_proxy": "proxy:3128"}) == PROXY


def test_the_port_of_http_is_80():
    assert proxy_for("http://api.example.org", {"HTTP_PROXY": PROXY, "NO_PROXY": "api.example.org:80"}) is None


async def test_a_plugin_for_credentials_that_fails_after_401_is_a_line_on_stderr(tmp_path: Path):
    refusal = answer(401, {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized", "code": 401})
    ran = tmp_path / "ran"
    user = script(f"test -e {ran} && {{ echo log in >&2; exit 3; }}; touch {ran}; printf '%s' '{credential('old')}'")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    async with listening(FaultServer(refusal), tls=tls_of(authority)) as url:
        path = write_kubeconfig(tmp_path / "kubeconfig", url, user, **{"certificate-authority": "ca.pem"})
        command = [sys.executable, "-m", "plugin", "list", "-o", "json", f"--kubeconfig={path}"]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, complaint = await process.communicate()
    assert output == b""
    assert complaint.decode().splitlines() == [
        "Warning: the server rejected the credentials and they cannot be loaded again: "
        f"kubeconfig {path} cannot be used: exec: sh: it ended with code 3: log in",
        "Error from server (Unauthorized): Unauthorized",
    ]


@pytest.mark.parametrize("text", ["sleep 60 & wait", "setsid sleep 60"])
async def test_a_plugin_for_credentials_that_hangs_ends_a_completion_after_seconds(tmp_path: Path, text: str):
    path = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", script(text))
    command = [sys.executable, "-m", "plugin.completion", f"--kubeconfig={path}", "tree", "vmpool/"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    async with asyncio.timeout(COMPLETION_S + 20):
        assert await process.communicate() == (b":4\n", b"")


def test_switches_that_destroy_are_not_read_from_the_environment(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
):
    cluster.install_kubevirt()
    for name in ("UNDO", "FORCE", "SCALE_IN"):
        monkeypatch.setenv(f"VMHERD_{name}", "true")
        monkeypatch.setenv(f"KUBECTL_VMHERD_{name}", "true")
    assert shell.output("takeover").startswith("patched KubeVirt kubevirt/kubevirt: virt-controller restarts without")


def test_the_version_needs_no_cluster(shell: Shell):
    assert shell.output("version").startswith("vmherd ")
    assert shell.output("version -n shop --context=nowhere").startswith("vmherd ")
    assert json.loads(shell.output("version -o json"))["clientVersion"]["version"]
    assert shell.output("--version").startswith("vmherd ")
