"""The certificates and keys of a control plane on loopback: new for each sandbox, readable only for their owner."""

import datetime
import os
from pathlib import Path
from typing import Any

import trustme
from msgspec import Struct

ADMIN_GROUP = "system:masters"
SERVICE_ADDRESS = "10.0.0.1"
"""The first address of the service range: the cluster IP of the Service `kubernetes` in the namespace `default`."""

LIFETIME = datetime.timedelta(days=365)


class Identity(Struct, frozen=True):
    certificate: Path
    key: Path


def kubeconfig(server: str, ca: Path, user: str, credentials: Identity | str) -> dict[str, Any]:
    if isinstance(credentials, str):
        identity = {"token": credentials}
    else:
        identity = {"client-certificate": str(credentials.certificate), "client-key": str(credentials.key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user}}],
        "current-context": "sandbox",
    }


class Pki:
    """Certificates and keys in a directory, and the two authorities (CAs) that sign them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._ca = trustme.CA(organization_name="vmherd sandbox")
        self._front_proxy = trustme.CA(organization_name="vmherd sandbox front proxy")
        self.ca = self._write("ca.crt", self._ca.cert_pem.bytes())
        self._write("front-proxy-ca.crt", self._front_proxy.cert_pem.bytes())

    def server(self) -> Identity:
        """The certificate is valid for all names and addresses under which programs connect to the API server."""
        names = ("localhost", "127.0.0.1", SERVICE_ADDRESS, "kubernetes", "kubernetes.default.svc")
        return self._issue(self._ca, "apiserver", "kube-apiserver", "", names)

    def client(self, user: str, group: str = "", *, file: str = "") -> Identity:
        """Create a client certificate for a user and a group, in files with the name `file` or that of the user."""
        return self._issue(self._ca, file or user.replace(":", "-"), user, group, (f"{user.replace(':', '-')}.client",))

    def front_proxy(self) -> Identity:
        return self._issue(self._front_proxy, "front-proxy", "front-proxy-client", "", ("front-proxy.client",))

    def _issue(self, ca: trustme.CA, file: str, user: str, group: str, names: tuple[str, ...]) -> Identity:
        issued = ca.issue_cert(
            *names,
            common_name=user,
            organization_name=group or None,
            not_after=datetime.datetime.now(datetime.UTC) + LIFETIME,
        )
        certificate = self._write(f"{file}.crt", b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        return Identity(certificate, self._write(f"{file}.key", issued.private_key_pem.bytes()))

    def _write(self, name: str, content: bytes) -> Path:
        path = self.directory / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return path
