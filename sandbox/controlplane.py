"""A real control plane on loopback: etcd, kube-apiserver and kube-controller-manager, in a directory of their own.

The API server has RBAC, an audit log, aggregation and priority and fairness switched on; the controller manager runs
the garbage collector, namespaces, service accounts, the horizontal autoscaler and cluster role aggregation. Ports are
free ones, data is gone when the directory is. Children die with this process.

Blocking, and to be used from one thread: `start` returns when requests are answered.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sandbox.binaries import Binaries
from sandbox.pki import ADMIN_GROUP, Identity, Pki
from sandbox.processes import Child, free_ports

READY_WITHIN_S = 60.0
PORT_TRIES = 3

CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "horizontal-pod-autoscaler-controller",
    "clusterrole-aggregation-controller",
)

AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "Metadata"},
    ],
}


class ControlPlaneError(Exception):
    """A part did not start or did not answer. `str()` says which, and ends with the end of its log."""


class ControlPlane:
    """See the module's contract."""

    def __init__(self, directory: Path, binaries: Binaries) -> None:
        self.directory = directory
        self.logs = directory / "logs"
        self.audit_log = self.logs / "audit.jsonl"
        self.kubeconfig = directory / "kubeconfig"
        self._binaries = binaries
        self._children: dict[str, Child] = {}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._api_port}"

    @property
    def ca(self) -> Path:
        return self._pki.ca

    def start(self) -> None:
        """Start all parts; return when the API server is ready. Raises ControlPlaneError, with nothing left running."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self._pki = Pki(self.directory / "pki")
        self._server = self._pki.server()
        self._front_proxy = self._pki.front_proxy()
        self._sa_key, self._sa_pub = self._pki.service_account_keys()
        self._admin = self._pki.client("vmherd-sandbox-admin", ADMIN_GROUP, file="admin")
        (self.directory / "audit-policy.yaml").write_text(json.dumps(AUDIT_POLICY))
        for tries_left in reversed(range(PORT_TRIES)):
            try:
                self._start_parts()
            except BaseException as error:
                self.stop()
                # Between finding a free port and using it, somebody else may have taken it.
                if not tries_left or "address already in use" not in str(error):
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop what is running, in reverse order."""
        for child in reversed(self._children.values()):
            child.stop()
        self._children.clear()

    def stop_apiserver(self) -> None:
        """Unplug the API server; everything else goes on."""
        self._children.pop("kube-apiserver").stop()

    def start_apiserver(self) -> None:
        """Start it again, on the port it had."""
        self._run("kube-apiserver", self._apiserver_flags())
        self._wait_until_ready("kube-apiserver", f"{self.url}/readyz")

    def failed(self) -> str:
        """Which part ended by itself, with its last words; "" while all is well."""
        for child in self._children.values():
            if not child.running:
                return f"{child.name} ended:\n{child.last_words()}"
        return ""

    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._children.items()}

    def write_kubeconfig(self, path: Path, user: str, group: str = "", *, token: str = "") -> Path:
        """A kubeconfig for somebody: by client certificate, or by bearer token where one is given."""
        if token:
            return self._write_kubeconfig(path, {"token": token}, user)
        return self._write_kubeconfig(path, _certificate(self._pki.client(user, group)), user)

    def audit_records(self) -> Iterator[dict[str, Any]]:
        """Every request that was answered so far, as audit.k8s.io Events."""
        with self.audit_log.open() as log:
            for line in log:
                if line.endswith("\n"):
                    yield json.loads(line)

    def _start_parts(self) -> None:
        self._etcd_port, self._peer_port, self._api_port, self._manager_port = free_ports(4)
        etcd = f"http://127.0.0.1:{self._etcd_port}"
        self._run("etcd", self._etcd_flags(etcd))
        self._run("kube-apiserver", self._apiserver_flags())
        self._write_kubeconfig(self.kubeconfig, _certificate(self._admin), "admin")
        manager = self._pki.client("system:kube-controller-manager", file="kube-controller-manager")
        manager_kubeconfig = self._write_kubeconfig(
            self.directory / "kube-controller-manager.kubeconfig", _certificate(manager), "kube-controller-manager"
        )
        self._wait_until_ready("kube-apiserver", f"{self.url}/readyz")
        self._run("kube-controller-manager", self._manager_flags(manager_kubeconfig))
        self._wait_for_default_account()

    def _run(self, name: str, flags: list[str]) -> None:
        command = [str(self._binaries.path(name)), *flags]
        self._children[name] = Child(name, command, self.logs / f"{name}.log")

    def _etcd_flags(self, client_url: str) -> list[str]:
        peer_url = f"http://127.0.0.1:{self._peer_port}"
        return [
            "--name=sandbox",
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=sandbox={peer_url}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._api_port}",
            f"--tls-cert-file={self._server.certificate}",
            f"--tls-private-key-file={self._server.key}",
            f"--client-ca-file={self._pki.ca}",
            f"--service-account-issuer={self.url}/",
            f"--service-account-key-file={self._sa_pub}",
            f"--service-account-signing-key-file={self._sa_key}",
            f"--requestheader-client-ca-file={self._pki.front_proxy_ca}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self._front_proxy.certificate}",
            f"--proxy-client-key-file={self._front_proxy.key}",
            "--enable-aggregator-routing=true",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--profiling=false",
            f"--audit-policy-file={self.directory / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
        ]

    def _manager_flags(self, kubeconfig: Path) -> list[str]:
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._manager_port}",
            f"--cert-dir={self.directory / 'pki'}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self._sa_key}",
            f"--root-ca-file={self._pki.ca}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--horizontal-pod-autoscaler-sync-period=2s",
            "--horizontal-pod-autoscaler-downscale-stabilization=10s",
            "--profiling=false",
        ]

    def _wait_until_ready(self, name: str, url: str) -> None:
        context = self._admin_context()
        give_up = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < give_up:
            child = self._children[name]
            if trouble := self.failed():
                raise ControlPlaneError(trouble)
            try:
                with urllib.request.urlopen(url, context=context, timeout=5):
                    return
            except (OSError, urllib.error.URLError):
                time.sleep(0.05)
        raise ControlPlaneError(f"{name} did not become ready within {READY_WITHIN_S:g}s:\n{child.last_words()}")

    def _wait_for_default_account(self) -> None:
        """Pods and tokens need it; it is also the sign that the controller manager works."""
        self._wait_until_ready(
            "kube-controller-manager", f"{self.url}/api/v1/namespaces/default/serviceaccounts/default"
        )

    def _admin_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self._pki.ca))
        context.load_cert_chain(str(self._admin.certificate), str(self._admin.key))
        return context

    def _write_kubeconfig(self, path: Path, credentials: dict[str, str], user: str) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "sandbox", "cluster": {"server": self.url, "certificate-authority": str(self._pki.ca)}}
            ],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user}}],
            "current-context": "sandbox",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path


def _certificate(identity: Identity) -> dict[str, str]:
    return {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
