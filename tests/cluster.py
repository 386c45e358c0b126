"""The real control plane for tests: one control plane for each process of the run, and a namespace for each test.

If a machine cannot run a control plane, these tests are skipped with the reason. If CI is set, they fail instead.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sandbox.admin import Admin, Rejected
from sandbox.binaries import Binaries, BinariesUnavailable, find_binaries
from sandbox.controlplane import ControlPlane
from sandbox.kubectl import kubectl_path
from tests.programs import finished

SERVED_WITHIN_S = 60.0
CREATE = "fieldManager=kubectl&fieldValidation=Strict"
APPLY = f"{CREATE}&force=true"

# The programs in Go collect garbage less often. A control plane then needs a fifth less CPU, and more memory.
os.environ.setdefault("GOGC", "400")
os.environ.setdefault("GOMEMLIMIT", "2GiB")

BARE_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("VMHERD_", "KUBE"))}
"""The environment of this process without settings of the programs under test."""

_CACHES = tempfile.TemporaryDirectory(prefix="vmherd-kubectl-")
"""kubectl remembers for each address what the server serves. A later server can have the same address. So each control
plane has a cache of its own.
"""


class Kubectl:
    """The real kubectl, as a user: `kubectl("get", "vmirs")`."""

    def __init__(self, kubeconfig: Path, namespace: str = "") -> None:
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self._cache = Path(_CACHES.name, *kubeconfig.parts[1:-1])

    @cached_property
    def admin(self) -> Admin:
        """A client for requests without kubectl."""
        return Admin(self.kubeconfig)

    def __call__(
        self, *arguments: str, stdin: str | dict[str, Any] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl. If `check` is true and the command fails, the test fails and shows kubectl's output."""
        command = [kubectl_path(), "--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self._cache)]
        if self.namespace:
            command += ["--namespace", self.namespace]
        text = json.dumps(stdin) if isinstance(stdin, dict) else stdin
        done = finished([*command, *arguments], input=text, within_s=100)
        if check and done.returncode:
            pytest.fail(f"kubectl {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json").stdout)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects with server-side apply, as `kubectl apply --server-side` does.

        The method sends the requests itself, because `kubectl apply` costs 0.1 s of CPU time, and 0.6 s more in the API
        server for the first schema.
        """
        for each in objects:
            path = f"{_path_of(self.admin, each, self.namespace)}/{each['metadata']['name']}?{APPLY}"
            self.admin.send("PATCH", path, json.dumps(each).encode(), "application/apply-patch+yaml")

    def create(self, item: dict[str, Any]) -> None:
        """Create an object as `kubectl create` does. The method sends the request itself, as `apply` does."""
        path = f"{_path_of(self.admin, item, self.namespace)}?{CREATE}"
        self.admin.send("POST", path, json.dumps(item).encode(), "application/json")

    def delete(self, item: dict[str, Any]) -> None:
        self.admin.send("DELETE", f"{_path_of(self.admin, item, self.namespace)}/{item['metadata']['name']}")


def _path_of(admin: Admin, item: dict[str, Any], namespace: str) -> str:
    """The path of the objects of a kind on the API server. A new definition is served after a short delay."""
    version, meta = item["apiVersion"], item["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    give_up = time.monotonic() + SERVED_WITHIN_S
    while (resource := _served(admin, root, item["kind"])) is None:
        if time.monotonic() > give_up:
            pytest.fail(f"the API server does not serve {version} {item['kind']}")
        time.sleep(0.05)
    within = f"/namespaces/{meta.get('namespace') or namespace or 'default'}" if resource["namespaced"] else ""
    return f"{root}{within}/{resource['name']}"


def _served(admin: Admin, root: str, kind: str) -> dict[str, Any] | None:
    with suppress(Rejected):
        resources = admin.get(root)["resources"]
        return next((each for each in resources if each["kind"] == kind and "/" not in each["name"]), None)
    return None


TYPE = re.compile(r'(?<=Invalid value: )"(object|string|integer|number|array|boolean|)": ')
VALUE = re.compile(r"(?<=Invalid value: )(?:\"[^\"]*\"|-?[\d.]+): ")


class DryRun:
    """Creates objects as a strict dry run in the namespace "default". Nothing is stored."""

    def __init__(self, kubeconfig: Path) -> None:
        self._admin = Admin(kubeconfig)

    def warnings(self, document: dict[str, Any]) -> list[str]:
        group_version, plural = document["apiVersion"], f"{document['kind'].lower()}s"
        path = f"/apis/{group_version}/namespaces/default/{plural}?dryRun=All&fieldValidation=Strict"
        answer = self._admin.ask("POST", path, json.dumps(document).encode(), "application/json")
        return answer.headers.getlist("Warning")

    def refusal(self, document: dict[str, Any]) -> list[str]:
        """The validation errors of the API server for the object, each in the form "field: message"."""
        try:
            self.warnings(document)
        except Rejected as refused:
            causes = refused.document.get("details", {}).get("causes") or []
            return [f"{cause['field']}: {cause['message']}" for cause in causes] or [str(refused)]
        pytest.fail(f"the API server accepts {document}")

    def refuses(self, document: dict[str, Any], message: str) -> bool:
        """Whether a validation error contains the message. Kubernetes 1.30 shows the type in place of the value."""
        found = self.refusal(document)
        without_value = VALUE.sub("", message)
        return any(message in each or (TYPE.search(each) and without_value in TYPE.sub("", each)) for each in found)


def skip_or_fail(why: str) -> NoReturn:
    """Skip the test because a dependency is missing. In CI, fail the test instead."""
    if os.environ.get("CI") == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.fixture(scope="session")
def control_plane_binaries() -> Binaries:
    """The programs of the control plane. Before the first test, `conftest.py` fetches or builds these programs."""
    try:
        return find_binaries()
    except BinariesUnavailable as error:
        skip_or_fail(str(error))


@contextmanager
def running_plane(
    binaries: Binaries, *, kind: type[ControlPlane] = ControlPlane, **options: Any
) -> Iterator[ControlPlane]:
    """Run a control plane while the block runs, and remove its files afterwards.

    Without `options`, the control plane has the project's definitions.
    """
    directory = Path(tempfile.mkdtemp(prefix="vmherd-tests-"))
    plane = kind(directory, binaries, **options)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def control_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane for the whole run, without a controller. A test that stops a component must start it again."""
    with running_plane(control_plane_binaries) as plane:
        yield plane


WORKLOADS = (
    "apis/pool.kubevirt.io/v1beta1/{}/virtualmachinepools",
    "apis/kubevirt.io/v1/{}/virtualmachineinstancereplicasets",
    "apis/kubevirt.io/v1/{}/virtualmachines",
    "apis/kubevirt.io/v1/{}/virtualmachineinstances",
    "apis/autoscaling/v2/{}/horizontalpodautoscalers",
)
"""The objects that cause work for as long as they exist."""


@contextmanager
def new_namespace(plane: ControlPlane) -> Iterator[str]:
    """Create a namespace for the block.

    At the end, delete the workloads of the namespace. The namespace itself stays: its deletion costs about 80 requests.
    """
    name = f"test-{uuid.uuid4().hex[:10]}"
    admin = Admin(plane.kubeconfig)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    admin.send("POST", "/api/v1/namespaces", json.dumps(body).encode(), "application/json")
    yield name
    for path in WORKLOADS:
        with suppress(Rejected):  # the control plane may not serve the definition
            admin.send("DELETE", "/" + path.format(f"namespaces/{name}"))


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    with new_namespace(control_plane) as name:
        yield name


@pytest.fixture(scope="session")
def dry(control_plane: ControlPlane) -> DryRun:
    """Shows the API server's warnings and errors for an object, without kubectl."""
    return DryRun(control_plane.kubeconfig)


@pytest.fixture
def kubectl(control_plane: ControlPlane, namespace: str) -> Kubectl:
    """kubectl as cluster admin, in the test's namespace."""
    return Kubectl(control_plane.kubeconfig, namespace)
