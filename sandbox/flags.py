"""This module builds the command lines of the control plane's components. All functions of this module are pure.

`directory` is the directory of the control plane. `sandbox.pki` writes the files in its folder `pki`.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

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


SYNC_PERIOD, DOWNSCALE_STABILIZATION, CPU_INITIALIZATION = "1s", "5s", "0s"
"""The reaction times of the horizontal autoscaler.

In Kubernetes, the default of the first is 15 seconds, and the default of the two others is 5 minutes. In the third, the
autoscaler may ignore the CPU load of a new Pod.
"""


def etcd(directory: Path, ports: Ports) -> list[str]:
    client, peer = _plain(ports.etcd), _plain(ports.etcd_peer)
    return [
        "--name=sandbox",
        f"--data-dir={directory}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
        # Do not wait for the disk after each write: the data may be lost in a power failure.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(directory: Path, ports: Ports, admission_plugins: Sequence[str], audit_log: Path) -> list[str]:
    keys = directory / "pki"
    return [
        f"--etcd-servers={_plain(ports.etcd)}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.api}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--service-account-issuer=https://127.0.0.1:{ports.api}/",
        f"--service-account-key-file={keys}/sa.pub",
        f"--service-account-signing-key-file={keys}/sa.key",
        # The next flags support aggregated API servers. Endpoints of a Service must not be on loopback. So a Service of
        # type ExternalName refers to localhost.
        f"--requestheader-client-ca-file={keys}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys}/front-proxy.crt",
        f"--proxy-client-key-file={keys}/front-proxy.key",
        "--authorization-mode=RBAC",
        # The API server enables these plugins in addition to the default plugins.
        f"--enable-admission-plugins={','.join(admission_plugins)}",
        "--anonymous-auth=false",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        f"--audit-policy-file={directory}/audit-policy.yaml",
        f"--audit-log-path={audit_log}",
        # In blocking mode, the record of a request is in the log before the client can send its next request. The
        # maximum file size is in MB: 1024 MB are enough for about a million requests.
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=1024",
        "--audit-log-maxbackup=1",
    ]


def manager(directory: Path, ports: Ports) -> list[str]:
    keys, kubeconfig = directory / "pki", directory / "kube-controller-manager.kubeconfig"
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.manager}",
        f"--cert-dir={keys}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={keys}/sa.key",
        f"--root-ca-file={keys}/ca.crt",
        f"--controllers={','.join(CONTROLLERS)}",
        # With the default limit of 20 requests a second, the garbage collector needs a minute to delete 1,000 objects.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        # The quota controller may notice a new CRD after a minute. Until then, only this sync counts deleted objects.
        "--resource-quota-sync-period=10s",
        f"--horizontal-pod-autoscaler-sync-period={SYNC_PERIOD}",
        f"--horizontal-pod-autoscaler-downscale-stabilization={DOWNSCALE_STABILIZATION}",
        f"--horizontal-pod-autoscaler-cpu-initialization-period={CPU_INITIALIZATION}",
        "--profiling=false",
    ]


def _plain(port: int) -> str:
    return f"http://127.0.0.1:{port}"
