"""For each kubeconfig of the corpus, kubectl and our client ask the same server with the same credentials, or both
refuse the kubeconfig.
"""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from informers.errors import ApiError
from informers.http.client import open_client
from informers.http.configuration import load_credentials
from informers.http.kubeconfig import ConfigurationError, Overrides
from tests.fakes.rules import without_nulls
from tests.informers.http.kubectl.cases import REFUSED, SECRET, Case
from tests.informers.http.kubectl.connections import ADDRESSES, FLAGS, PLAIN, TLS
from tests.informers.http.kubectl.files import FILES
from tests.informers.http.kubectl.recording import Pki, Seen, recording
from tests.informers.http.kubectl.users import EXEC, USERS

BIN = Path(sys.executable).parent
AT_ONCE = 4
AT_MOST_S = 30.0
ARGUMENTS = {
    "--as": "as_user", "--as-group": "as_groups",
    **{f"--{name.replace('_', '-')}": name for name in ("kubeconfig", *Overrides._fields)},
}  # fmt: skip
GROUPS = {
    "addresses": ADDRESSES, "http": PLAIN, "tls": TLS, "users": USERS, "flags": FLAGS, "plugins": EXEC, "files": FILES,
}  # fmt: skip
CASES = [case for group in GROUPS.values() for case in group]


class Outcome(NamedTuple):
    """What the servers saw of one client, in words, and what the exec plugin was told. `message` is its complaint."""

    seen: str
    told: list[Any]
    message: str = ""


class Place:
    """The folder and the servers of one case."""

    def __init__(self, case: Case, folder: Path, texts: dict[str, str], seen: list[Seen]) -> None:
        self.case, self._folder, self._seen = case, folder, seen
        self._texts = {**texts, "$DIR": str(folder)}
        for name, text in case.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.fill(text))
            path.chmod(0o755 if name.endswith(".sh") else 0o600)
        self.flags = {flag: self.fill(value) for flag, value in case.flags.items()}
        path = os.pathsep.join((str(folder / "bin"), "/usr/bin", "/bin"))
        self.env = {"PATH": path, "HOME": str(folder), **{name: self.fill(value) for name, value in case.env.items()}}

    def fill(self, text: str) -> str:
        for name in sorted(self._texts, key=len, reverse=True):
            text = text.replace(name, self._texts[name])
        return text

    def outcome(self, message: str) -> Outcome:
        """Return what was recorded since the last call."""
        seen = "; ".join(dict.fromkeys(map(str, self._seen))) or REFUSED
        infos = self._folder / "infos"
        told = [json.loads(text) for text in infos.read_text().split("\0") if text] if infos.exists() else []
        self._seen.clear()
        infos.unlink(missing_ok=True)
        return Outcome(seen, [without_nulls(each) for each in told[:1]], message)


async def ask_with_kubectl(place: Place, turns: asyncio.Semaphore) -> Outcome:
    flags = [f"{flag}={value}" for flag, value in place.flags.items()]
    async with turns, asyncio.timeout(AT_MOST_S):
        process = await asyncio.create_subprocess_exec(
            str(BIN / "kubectl"), "version", *flags, env={**place.env, "KUBERC": "off"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/",
        )  # fmt: skip
        output, _ = await process.communicate()
    return place.outcome(output.decode())


async def ask_with_our_client(place: Place) -> Outcome:
    arguments: dict[str, Any] = {ARGUMENTS[flag]: value for flag, value in place.flags.items()}
    if "insecure_skip_tls_verify" in arguments:
        arguments["insecure_skip_tls_verify"] = arguments["insecure_skip_tls_verify"] == "true"
    if "as_groups" in arguments:
        arguments["as_groups"] = (arguments["as_groups"],)
    with mock.patch.dict(os.environ, place.env, clear=True):
        try:
            async with open_client(await load_credentials(**arguments), user_agent="tests") as client:
                await client.request("GET", "/version")
        except (ConfigurationError, ApiError) as error:
            return place.outcome(str(error))
    return place.outcome("")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@asynccontextmanager
async def places(pki: Pki, cases: Sequence[Case], tmp_path: Path) -> AsyncIterator[list[Place]]:
    async with AsyncExitStack() as stack:
        found = []
        for number, case in enumerate(cases):
            folder = tmp_path / str(number)
            folder.mkdir()
            used = " ".join((*case.files.values(), *case.flags.values(), *case.env.values()))
            texts, seen = await stack.enter_async_context(recording(pki, used))
            found.append(Place(case, folder, {**pki.texts, **texts}, seen))
        yield found


@pytest.mark.parametrize("group", GROUPS)
async def test_kubectl_and_our_client_ask_the_same_server_with_the_same_credentials(
    pki: Pki, tmp_path: Path, group: str
):
    turns = asyncio.Semaphore(AT_ONCE)
    wrong = []
    async with places(pki, GROUPS[group], tmp_path) as all_places:
        theirs = await asyncio.gather(*(ask_with_kubectl(place, turns) for place in all_places))
        for place, expected in zip(all_places, theirs, strict=True):
            case, found = place.case, await ask_with_our_client(place)
            if case.differs:
                agrees = found.seen == place.fill(case.ours) != expected.seen
            else:
                agrees = (found.seen, found.told) == (expected.seen, expected.told)
            if not agrees:
                wrong.append(f"\n{case.name}\n  kubectl: {expected}\n  ours:    {found}")
            assert "\n" not in found.message, case.name
            assert SECRET not in found.message, case.name
            assert not found.seen.startswith("http ") or " auth=None cn=None " in found.seen, case.name
    assert not wrong, "".join(wrong)


def test_each_case_has_a_name_and_each_difference_a_reason():
    assert len({case.name for case in CASES}) == len(CASES)
    assert [case.name for case in CASES if bool(case.differs) != bool(case.ours)] == []


async def test_the_plugin_sends_what_kubectl_sends_and_says_what_it_does_not_send(pki: Pki, tmp_path: Path):
    chosen = {"impersonation with --as", "http with --token", "--cluster and --user without a context"}
    cases = [case for case in CASES if case.name in chosen]
    async with places(pki, cases, tmp_path) as all_places:
        for place in all_places:
            expected = await ask_with_kubectl(place, asyncio.Semaphore(1))
            flags = [f"{flag}={value}" for flag, value in place.flags.items()]
            process = await asyncio.create_subprocess_exec(
                str(BIN / "kubectl-vmherd"), "list", *flags, env=place.env, stderr=subprocess.PIPE
            )
            _, complaint = await process.communicate()
            warnings = [line for line in complaint.decode().splitlines() if line.startswith("Warning")]
            warned = f"Warning: {place.fill('$HTTP')} gets no credentials, because http is not encrypted"
            assert warnings == ([warned] if place.case.name.startswith("http") else []), place.case.name
            found = place.outcome(complaint.decode()).seen.split("; ")
            credentials = {each.partition(" auth=")[2] for each in found}
            assert credentials == {expected.seen.partition(" auth=")[2]}, place.case.name


# In a Pod, kubectl and the plugin of kubectl use the same credentials of the Pod's service account. The files of the
# service account have fixed paths, so each program runs in a mount namespace of its own.


ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MOUNT = f"mount -t tmpfs none /run && mkdir -p {ACCOUNT} && cp ca.crt token namespace {ACCOUNT}/"
ISOLATED = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


def can_mount() -> bool:
    done = subprocess.run([*ISOLATED, "mount -t tmpfs none /run"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="this machine has no user namespaces")
@pytest.mark.parametrize(
    ("flags", "auth"),
    [
        ([], f"Bearer {SECRET}-pod"),
        (["--token=mine"], "Bearer mine"),
        (["--server=$HTTPS/x", "--token=mine"], "Bearer mine"),
        (["--kubeconfig=$DIR/config"], f"Bearer {SECRET}-file"),
        (["--server=$HTTPS/x"], None),
    ],
    ids=["alone", "with a token", "with a server and a token", "with a kubeconfig", "with a server"],
)
async def test_in_a_pod_the_credentials_are_those_of_kubectl(tmp_path: Path, flags: list[str], auth: str | None):
    (tmp_path / "pki").mkdir()
    pki = Pki(tmp_path / "pki")
    async with recording(pki, "$HTTPS") as (texts, seen):
        texts["$DIR"] = str(tmp_path)
        for name, text in (("token", f"{SECRET}-pod\n"), ("namespace", "team-a"), ("ca.crt", pki.texts["$CA_PEM"])):
            (tmp_path / name).write_text(text)
        (tmp_path / "config").write_text(KUBECONFIG.replace("$HTTPS", texts["$HTTPS"]).replace("$PKI", str(pki.folder)))
        host, _, port = texts["$HOST"].partition(":")
        environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(tmp_path), "KUBERC": "off",
            "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
            # kubectl trusts the authorities of the system if only a server is given, and so does our client.
            "SSL_CERT_FILE": str(tmp_path / "ca.crt"),
        }  # fmt: skip
        given = [flag.replace("$HTTPS", texts["$HTTPS"]).replace("$DIR", texts["$DIR"]) for flag in flags]
        found = {}
        for program, verb in (("kubectl", "version"), ("kubectl-vmherd", "list")):
            command = shlex.join([str(BIN / program), verb, *given])
            process = await asyncio.create_subprocess_exec(
                *ISOLATED, f"{MOUNT} && exec {command}", cwd=tmp_path, env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            await process.wait()
            found[program] = {each.auth for each in seen} or {None}
            seen.clear()
    assert found == {"kubectl": {auth}, "kubectl-vmherd": {auth}}


KUBECONFIG = """
clusters: [{name: a, cluster: {server: $HTTPS, certificate-authority: $PKI/ca.pem}}]
users: [{name: a, user: {token: s3cr3t-file}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""
