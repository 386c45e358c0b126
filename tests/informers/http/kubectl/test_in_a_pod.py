"""In a Pod, kubectl and the plugin of kubectl use the same credentials of the Pod's service account.

The files of the service account have fixed paths, so each program runs in a mount namespace of its own.
"""

import asyncio
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.informers.http.kubectl.cases import SECRET
from tests.informers.http.kubectl.recording import Pki, recording
from tests.informers.http.kubectl.test_kubectl_agrees import BIN

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
