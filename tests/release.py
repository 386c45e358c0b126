"""A release in a control plane without running Pods, and the arguments, environment and token of its Pods.

The release is `manifests/controller`, which the chart renders with its default values. The arguments, the environment
and the account come from the Deployment in the API server. The API server also issues the token.

Some flags need other permissions, for example the flag for another mode. For such flags, the chart renders another
role. These tests use a separate account with the permissions that `permissions_needed` lists.
"""

import base64
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct

from controller.access import Permission
from controller.config.settings import Config
from controller.preflight.permissions import permissions_needed
from sandbox.admin import Admin, Rejected
from sandbox.audit import AuditRecord, read_records
from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.command_line import parse
from tests.helm import run_flags
from tests.rbac import roles

BASE = Path(__file__).resolve().parent.parent / "manifests" / "controller"
NAMESPACE, NAME = "vmherd-system", "vmherd"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{NAME}"
ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
A_DAY_S = 86_400
"""The lifetime of a token. It is longer than any test run, because no kubelet renews the token."""

IN_FORCE_WITHIN_S = 60.0
HARMLESS = frozenset([("get", "customresourcedefinitions"), ("list", "leases")])
"""Requests that may fail because no role allows them.

The controller sends the first request to find the reason why a kind is not served. A leader outside a Pod, as in these
tests, sends the second request to find other leaders. Without these permissions, the controller works too.
"""


class Pod(Struct, frozen=True):
    """The parts of a Pod that the controller needs: its arguments, its environment and the token of its account."""

    plane: ControlPlane
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    account: str
    token: str

    @property
    def credential(self) -> str:
        """The credential ID of this Pod in the audit log. Other Pods with the same account have other IDs."""
        claims = self.token.split(".")[1]
        return "JTI=" + str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["jti"])

    def requests(self, since: int = 0) -> Iterator[AuditRecord]:
        credential = self.credential
        return (record for record in read_records(self.plane.audit_log, since) if record.credential == credential)

    def lacks(self, since: int = 0) -> set[tuple[str, str, str]]:
        """The verb, resource and subresource of each request after `since` that was refused because no role allows it.

        A new server refuses all requests until it has read its roles. So this method asks the server again about each
        refused request.
        """
        refused = {
            (r.verb, r.resource, r.subresource, r.group, r.namespace): r
            for r in self.requests(since)
            if r.annotations.get("authorization.k8s.io/decision") == "forbid"
            and r.resource
            and (r.verb, r.resource) not in HARMLESS
        }
        admin, user = Admin(self.plane.kubeconfig), _user(self.account)
        return {what[:3] for what, record in refused.items() if not _allows(admin, user, _attributes(record))}


def pod(plane: ControlPlane, *flags: str) -> Pod:
    """A new Pod of a release with the permissions that these flags need."""
    arguments, environment, account = _installed(plane)
    needed = permissions_needed(parse([*arguments, *flags], environment))
    if set(needed) != set(permissions_needed(parse(arguments, environment))):
        account = _account_for(plane, needed)
    return Pod(plane, arguments, environment, account, _token(plane, account))


def pod_that_may(plane: ControlPlane, permissions: Iterable[Permission]) -> Pod:
    """A new Pod with exactly these permissions."""
    arguments, environment, _ = _installed(plane)
    account = _account_for(plane, tuple(permissions))
    return Pod(plane, arguments, environment, account, _token(plane, account))


def settings(plane: ControlPlane, *flags: str) -> Config:
    """The configuration of a release. These flags are added to the arguments of the release."""
    arguments, environment, _ = _installed(plane)
    return parse([*arguments, *flags], environment)


def _installed(plane: ControlPlane) -> tuple[tuple[str, ...], dict[str, str], str]:
    """The arguments, the environment and the account of the release. Installs the release if it is missing."""
    admin = Admin(plane.kubeconfig)
    try:
        deployment = admin.get(DEPLOYMENT)
    except Rejected as refused:
        if refused.status != 404:
            raise
        texts = [path.read_text().replace("image: ''", f"image: {NAME}") for path in _resources()]
        release = [each for text in texts for each in yaml.safe_load_all(text)]
        Kubectl(plane.kubeconfig).apply(*release)
        _wait_until_in_force(admin, release)
        deployment = admin.get(DEPLOYMENT)
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    environment = {each["name"]: each["value"] for each in container.get("env", ())}
    return tuple(run_flags(container["args"])), environment, spec["serviceAccountName"]


def _resources() -> list[Path]:
    """The files of the release, without the admission policies: they would deny the annotations of some tests."""
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [BASE / name for name in names if name != "annotationpolicies.yaml"]


def _account_for(plane: ControlPlane, permissions: Iterable[Permission]) -> str:
    """An account with exactly these permissions, created if it is missing."""
    wanted = sorted(set(permissions))
    name = f"{NAME}-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:8]}"
    admin = Admin(plane.kubeconfig)
    try:
        admin.get(f"{ACCOUNTS}/{name}")
    except Rejected as refused:
        if refused.status != 404:
            raise
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
        objects = roles(wanted, name=name, account_namespace=NAMESPACE)
        Kubectl(plane.kubeconfig).apply(*objects, account)
        _wait_until_in_force(admin, objects)
    return name


def _token(plane: ControlPlane, account: str) -> str:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": A_DAY_S}}
    body = json.dumps(request).encode()
    answer = Admin(plane.kubeconfig).send("POST", f"{ACCOUNTS}/{account}/token", body, "application/json")
    return str(json.loads(answer)["status"]["token"])


def _wait_until_in_force(admin: Admin, objects: Iterable[dict[str, Any]]) -> None:
    """Wait until each role of an account is in force, because the server uses new roles only after a short delay."""
    by_name = {(each["kind"], each["metadata"]["name"], each["metadata"].get("namespace")): each for each in objects}
    give_up = time.monotonic() + IN_FORCE_WITHIN_S
    for binding in by_name.values():
        if not binding["kind"].endswith("Binding"):
            continue
        namespace = binding["metadata"].get("namespace")
        rule = by_name[binding["roleRef"]["kind"], binding["roleRef"]["name"], namespace]["rules"][0]
        user = _user(binding["subjects"][0]["name"])
        while not _allows(admin, user, _first_of(rule, namespace or "")):
            if time.monotonic() > give_up:
                pytest.fail(f"the API server does not know of {binding['metadata']['name']}")
            time.sleep(0.05)


def _user(account: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{account}"


def _first_of(rule: Mapping[str, Any], namespace: str) -> dict[str, str]:
    """The attributes of the first request that an RBAC rule allows."""
    resource, _, subresource = rule["resources"][0].partition("/")
    name = rule.get("resourceNames", [""])[0]
    what = {"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource, "name": name}
    return {**what, "verb": rule["verbs"][0], "namespace": namespace}


def _attributes(record: AuditRecord) -> dict[str, str]:
    """The attributes of a request, as a SubjectAccessReview needs them."""
    fields = ("group", "resource", "subresource", "name", "verb", "namespace")
    return {field: getattr(record, field) for field in fields}


def _allows(admin: Admin, user: str, attributes: Mapping[str, str]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": GROUPS, "resourceAttributes": attributes},
    }
    answer = admin.send("POST", REVIEWS, json.dumps(review).encode(), "application/json")
    return bool(json.loads(answer)["status"]["allowed"])
