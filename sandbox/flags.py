"""This module builds the command lines of the control plane's components. All functions of this module are pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from sandbox.pki import Identity

CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "horizontal-pod-autoscaler-controller",
    "clusterrole-aggregation-controller",
    "endpointslice-controller",
    "disruption-controller",
    "resourcequota-controller",
)


class Ports(Struct, frozen=True):
    etcd: int
    etcd_peer: int
    api: int
    manager: int


class Files(Struct, frozen=True, kw_only=True):
    data: Path
    certificates: Path
    ca: Path
    server: Identity
    front_proxy_ca: Path
    front_proxy: Identity
    account_key: Path
    account_public_key: Path
    audit_policy: Path
    audit_log: Path
    manager_kubeconfig: Path


class Autoscaling(Struct, frozen=True):
    """The reaction times of the horizontal autoscaler in seconds.

    In Kubernetes, the default of `sync_period_s` is 15 seconds. The default of the two other fields is 5 minutes.
    """

    sync_period_s: float = 1.0
    downscale_stabilization_s: float = 5.0
    cpu_initialization_s: float = 0.0
    """The time after the start of a Pod in which the autoscaler may ignore the Pod's CPU load."""


def etcd(files: Files, ports: Ports) -> list[str]:
    client, peer = _plain(ports.etcd), _plain(ports.etcd_peer)
    return [
        "--name=sandbox",
        f"--data-dir={files.data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
        # Do not wait for the disk after each write: the data may be lost in a power failure.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(files: Files, ports: Ports, admission_plugins: Sequence[str] = ()) -> list[str]:
    return [
        f"--etcd-servers={_plain(ports.etcd)}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.api}",
        f"--tls-cert-file={files.server.certificate}",
        f"--tls-private-key-file={files.server.key}",
        f"--client-ca-file={files.ca}",
        f"--service-account-issuer=https://127.0.0.1:{ports.api}/",
        f"--service-account-key-file={files.account_public_key}",
        f"--service-account-signing-key-file={files.account_key}",
        # The next flags support aggregated API servers. Endpoints of a Service must not be on loopback. So a Service of
        # type ExternalName refers to localhost.
        f"--requestheader-client-ca-file={files.front_proxy_ca}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files.front_proxy.certificate}",
        f"--proxy-client-key-file={files.front_proxy.key}",
        "--authorization-mode=RBAC",
        # The API server enables these plugins in addition to the default plugins.
        f"--enable-admission-plugins={','.join(admission_plugins)}",
        "--anonymous-auth=false",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        f"--audit-policy-file={files.audit_policy}",
        f"--audit-log-path={files.audit_log}",
        # In blocking mode, the record of a request is in the log before the client can send its next request. The
        # maximum file size is in MB: 1024 MB are enough for about a million requests.
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=1024",
        "--audit-log-maxbackup=1",
    ]


def manager(files: Files, ports: Ports, autoscaling: Autoscaling) -> list[str]:
    return [
        f"--kubeconfig={files.manager_kubeconfig}",
        f"--authentication-kubeconfig={files.manager_kubeconfig}",
        f"--authorization-kubeconfig={files.manager_kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.manager}",
        f"--cert-dir={files.certificates}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={files.account_key}",
        f"--root-ca-file={files.ca}",
        f"--controllers={','.join(CONTROLLERS)}",
        # With the default limit of 20 requests a second, the garbage collector needs a minute to delete 1,000 objects.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        # The quota controller may notice a new CRD after a minute. Until then, only this sync counts deleted objects.
        "--resource-quota-sync-period=10s",
        f"--horizontal-pod-autoscaler-sync-period={autoscaling.sync_period_s:g}s",
        f"--horizontal-pod-autoscaler-downscale-stabilization={autoscaling.downscale_stabilization_s:g}s",
        f"--horizontal-pod-autoscaler-cpu-initialization-period={autoscaling.cpu_initialization_s:g}s",
        "--profiling=false",
    ]


def _plain(port: int) -> str:
    return f"http://127.0.0.1:{port}"
