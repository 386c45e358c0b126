"""Runs a real control plane on loopback: etcd, kube-apiserver and kube-controller-manager. See docs/sandbox.md.

Each start begins with an empty cluster. If this process ends or is killed, the kernel kills all components. Only one
thread at a time may call the methods of `ControlPlane`, which are blocking calls.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any, Final

import yaml
from msgspec import Struct, structs

from sandbox import audit
from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.binaries import Binaries
from sandbox.pki import ADMIN_GROUP, Identity, Pki, kubeconfig
from sandbox.processes import Child, Spawner, free_ports

PROJECT = Path(__file__).parent.parent
CRD_DIRECTORIES = (PROJECT / "manifests" / "crds", Path(__file__).parent / "crds")
SERVED_TIMEOUT_S = 30.0
CHECKED = ("Established", "NamesAccepted", "NonStructuralSchema")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class CrdError(Exception):
    """CRDs cannot be installed: a file is invalid, or the API server rejects or does not serve a CRD, or is silent."""


def install_definitions(kubeconfig: Path, directories: Iterable[Path]) -> None:
    """Apply every CRD in the directories that exist, and wait until all kinds are served. Raises CrdError."""
    admin = Admin(kubeconfig)
    definitions = [definition for directory in directories for definition in _definitions(directory)]
    try:
        for definition in definitions:
            admin.apply(f"{DEFINITIONS}/{name_of(definition)}", definition)
        wait_until_served(admin, definitions)
    except Rejected as error:
        raise CrdError(f"{name_of(definition)}: {error}") from error
    except Unanswered as error:
        raise CrdError(f"the API server does not answer: {error}") from error


def _definitions(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob("*.yaml")):
        try:
            documents = list(yaml.safe_load_all(path.read_text()))
        except yaml.YAMLError as error:
            raise CrdError(f"{path}: {error}") from error
        for document in documents:
            if isinstance(document, dict) and document.get("kind") == "CustomResourceDefinition":
                yield document


def wait_until_served(admin: Admin, definitions: Iterable[dict[str, Any]]) -> None:
    """Wait until discovery lists all kinds of these CRDs. Raises CrdError after SERVED_TIMEOUT_S seconds."""
    missing = {served for definition in definitions for served in _served_versions(definition)}
    deadline = time.monotonic() + SERVED_TIMEOUT_S
    while missing := missing - _discovered(admin, {group_version for group_version, _ in missing}):
        if time.monotonic() > deadline:
            names = ", ".join(sorted(f"{plural} ({version})" for version, plural in missing))
            raise CrdError(f"not served after {SERVED_TIMEOUT_S:g} s: {names}; {_failure_reason(admin)}")
        time.sleep(0.05)


def _served_versions(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            yield f"{spec['group']}/{version['name']}", spec["names"]["plural"]


def _discovered(admin: Admin, group_versions: Iterable[str]) -> set[tuple[str, str]]:
    discovered: set[tuple[str, str]] = set()
    for group_version in group_versions:
        with suppress(Rejected):
            resources = admin.get(f"/apis/{group_version}")["resources"]
            discovered.update((group_version, resource["name"]) for resource in resources)
    return discovered


def _failure_reason(admin: Admin) -> str:
    for definition in admin.get(DEFINITIONS)["items"]:
        for condition in definition.get("status", {}).get("conditions", ()):
            bad = "True" if condition["type"] == "NonStructuralSchema" else "False"
            if condition["status"] == bad and condition["type"] in CHECKED:
                return f"{name_of(definition)}: {condition.get('message', condition['type'])}"
    return "the API server gives no reason"


def name_of(definition: dict[str, Any]) -> str:
    return str(definition["metadata"]["name"])


FLAGS: Final[Mapping[str, Sequence[str]]] = yaml.safe_load(Path(__file__).with_name("flags.yaml").read_text())
"""The flags of each component. They have placeholders for the ports, the directory and the admission plugins."""

READY_WITHIN_S = 60.0
PORT_TRIES = 3
PORT_TAKEN = "address already in use"
APISERVER, MANAGER, ETCD = "kube-apiserver", "kube-controller-manager", "etcd"
NOT_NEEDED_FOR_CRDS = (
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/priority-and-fairness-config-producer",
)
"""The last steps in the start of the API server. CRDs can be installed before these steps are complete."""

READY_FOR_CRDS = f"/readyz?{'&'.join(f'exclude={check}' for check in NOT_NEEDED_FOR_CRDS)}"

DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class Ports(Struct, frozen=True):
    etcd: int
    etcd_peer: int
    api: int
    manager: int


class ControlPlaneError(Exception):
    """A component does not start or does not answer. `str()` has its name and the last lines of its log."""


class ControlPlane:
    """A control plane that keeps its files in one directory. The docstring of `sandbox.running` lists these files."""

    def __init__(
        self,
        directory: Path,
        binaries: Binaries,
        *,
        crd_directories: Iterable[Path] = CRD_DIRECTORIES,
        admission_plugins: Iterable[str] = (),
        ports: Callable[[int], list[int]] = free_ports,
    ) -> None:
        self.directory = directory.resolve()
        self.logs = self.directory / "logs"
        self.audit_log = self.logs / "audit.jsonl"
        self.kubeconfig = self.directory / "kubeconfig"
        self._binaries = binaries
        self._crd_directories = tuple(crd_directories)
        self._admission_plugins = tuple(admission_plugins)
        self._find_ports = ports
        self._children: dict[str, Child] = {}
        self._spawner = Spawner()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.ports.api}"

    @property
    def ca(self) -> Path:
        return self._pki.ca

    def start(self) -> None:
        """Start all components, and wait until they work. Raises ControlPlaneError or CrdError; then none runs."""
        self.logs.mkdir(parents=True, exist_ok=True)
        self.audit_log.unlink(missing_ok=True)
        self._make_keys()
        (self.directory / "audit-policy.yaml").write_text(audit.POLICY.read_text())
        for tries_left in reversed(range(PORT_TRIES)):
            try:
                return self._start_components()
            except ControlPlaneError as error:
                # Another process may have taken the port after the call of `_find_ports`.
                self.stop()
                if not tries_left or PORT_TAKEN not in str(error):
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        for child in reversed(self._children.values()):
            child.stop()
        self._children.clear()
        self._spawner.close()

    @property
    def etcd_data(self) -> Path:
        return self.directory / "etcd"

    def stop_component(self, name: str) -> None:
        self._children.pop(name).stop()

    def start_component(self, name: str) -> None:
        plugins = ",".join(self._admission_plugins)
        texts = {"directory": self.directory, "admission_plugins": plugins, **structs.asdict(self.ports)}
        self._run(name, [Template(flag).substitute(texts) for flag in FLAGS[name]])

    def start_program(self, name: str, module: str, *options: str) -> None:
        """Start a Python module that works on the cluster. It counts as a component, so `stop` stops it first."""
        command = [sys.executable, "-m", module, *options, f"--kubeconfig={self.kubeconfig}"]
        self._children[name] = self._spawner.start(name, command, self.logs / f"{name}.log")

    def start_apiserver(self) -> None:
        self.start_component(APISERVER)
        self._wait_for(APISERVER, "/readyz")

    def restart_apiserver(self) -> None:
        self.stop_component(APISERVER)
        self.start_apiserver()

    def failed(self) -> str:
        """Return the name and the last log lines of a component that ended by itself, or ""."""
        for child in tuple(self._children.values()):
            if not child.running:
                return f"{child.name} ended:\n{child.log_tail()}"
        return ""

    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._children.items()}

    def write_kubeconfig(self, path: Path, user: str, group: str = "", *, token: str = "") -> Path:
        """The kubeconfig contains the bearer token, or a new client certificate if `token` is empty."""
        return self._write_kubeconfig(path, token or self._pki.client(user, group), user)

    def audit_position(self) -> int:
        return self.audit_log.stat().st_size

    def _make_keys(self) -> None:
        self._pki = Pki(self.directory / "pki")
        self._admin = self._pki.client("vmherd-sandbox-admin", ADMIN_GROUP, file="admin")
        self._manager = self._pki.client("system:kube-controller-manager", file=MANAGER)
        self._pki.server()
        self._pki.front_proxy()

    def _start_components(self) -> None:
        self._spawner = Spawner()
        self.ports = Ports(*self._find_ports(len(Ports.__struct_fields__)))
        shutil.rmtree(self.etcd_data, ignore_errors=True)
        self._write_kubeconfig(self.kubeconfig, self._admin, "admin")
        self._write_kubeconfig(self.directory / f"{MANAGER}.kubeconfig", self._manager, MANAGER)
        self.start_component(ETCD)
        self.start_component(APISERVER)
        # Install the CRDs while the API server still creates its roles.
        self._wait_for(APISERVER, READY_FOR_CRDS)
        install_definitions(self.kubeconfig, self._crd_directories)
        self._wait_for(APISERVER, "/readyz")
        try:
            install_storage_classes(self.kubeconfig)
            if CRD_DIRECTORIES[0] in self._crd_directories:
                install_user_roles(self.kubeconfig)
        except (Unanswered, Rejected) as error:
            raise ControlPlaneError(f"{APISERVER} does not store the StorageClasses or roles: {error}") from error
        # Start the controller manager after the CRDs, because the garbage collector looks for new kinds only every 30
        # seconds.
        self.start_component(MANAGER)
        # Wait for the default service account. Tokens and Pods need the account. The controller manager creates the
        # account, so the account also shows that the controller manager works.
        self._wait_for(MANAGER, DEFAULT_ACCOUNT)

    def _run(self, name: str, arguments: list[str]) -> None:
        command = [str(self._binaries[name]), *arguments]
        self._children[name] = self._spawner.start(name, command, self.logs / f"{name}.log")

    def _wait_for(self, name: str, path: str) -> None:
        admin = Admin(self.kubeconfig)
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if failure := self.failed():
                raise ControlPlaneError(failure)
            try:
                admin.send("GET", path, timeout_s=5)
            except (Unanswered, Rejected):
                time.sleep(0.05)
            else:
                return
        log_tail = self._children[name].log_tail()
        raise ControlPlaneError(f"{name} is not ready after {READY_WITHIN_S:g} s:\n{log_tail}")

    def _write_kubeconfig(self, path: Path, credentials: Identity | str, user: str) -> Path:
        temporary = path.with_name(f".{path.name}.new")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            yaml.safe_dump(kubeconfig(self.url, self._pki.ca, user, credentials), file, sort_keys=False)
        return temporary.replace(path)


STORAGE_CLASSES: Final = Path(__file__).with_name("storage_classes.yaml")


def install_storage_classes(kubeconfig: Path) -> None:
    """Apply the StorageClasses. Raises Unanswered or Rejected. A second call changes nothing."""
    admin = Admin(kubeconfig)
    for document in yaml.safe_load_all(STORAGE_CLASSES.read_text()):
        admin.apply(f"/apis/storage.k8s.io/v1/storageclasses/{document['metadata']['name']}", document)


USER_ROLES: Final = (PROJECT / "manifests" / "controller" / "rbac.yaml", Path(__file__).with_name("user_roles.yaml"))
AGGREGATED: Final = "rbac.authorization.k8s.io/aggregate-to-"


def install_user_roles(kubeconfig: Path) -> None:
    """Add all kinds to the roles view, edit and admin, as an installation does. Raises Unanswered or Rejected."""
    admin = Admin(kubeconfig)
    for document in (each for path in USER_ROLES for each in yaml.safe_load_all(path.read_text())):
        labels = {name: value for name, value in document["metadata"].get("labels", {}).items() if AGGREGATED in name}
        if labels:
            # A release in this control plane has roles of its own, with the usual names.
            metadata = {"name": f"sandbox-{document['metadata']['name']}", "labels": labels}
            path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{metadata['name']}"
            admin.apply(path, {**document, "metadata": metadata})
