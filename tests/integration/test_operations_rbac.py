"""The exact permissions that the controller asks for are enough for all that it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.config import Config
from controller.permissions import permissions_needed
from tests.cluster import Kubectl
from tests.integration.herd import LABELS, Place, eventually, herd, owned_by
from tests.integration.vacant import SHORT_LEASE
from tests.rbac import roles, service_account

pytestmark = pytest.mark.cluster

ACCOUNT = "vmherd"


def account_kubeconfig(place: Place, directory: Path) -> Path:
    """A service account of the test's namespace that holds exactly what is needed, and its token."""
    place.kubectl("create", "serviceaccount", ACCOUNT)
    subject = service_account(place.namespace, ACCOUNT)
    Kubectl(place.plane.kubeconfig).apply(
        *roles(permissions_needed(Config()), name=f"herd-{place.namespace}", subject=subject)
    )
    token = place.kubectl("create", "token", ACCOUNT).stdout.strip()
    return place.plane.write_kubeconfig(directory / "account.kubeconfig", ACCOUNT, token=token)


def test_under_exactly_the_permissions_it_asks_for_nothing_is_refused(vacant: Place, tmp_path: Path) -> None:
    orphan = vacant.make_vmi("orphan")
    with herd(account_kubeconfig(vacant, tmp_path), tmp_path, *SHORT_LEASE) as program:
        owner = vacant.make_set(3)
        alive = vacant.wait_for(3)
        assert alive["orphan"]["metadata"]["uid"] == orphan["metadata"]["uid"]
        vacant.play_all()
        eventually(lambda: vacant.status().get("readyReplicas") == 3, what="all are ready")
        vacant.change_vmi("orphan", {"metadata": {"labels": {"app": None}}})
        eventually(lambda: len(owned_by(vacant.alive().values(), owner)) == 3 and len(vacant.alive()) == 4)
        vacant.change_vmi("orphan", {"metadata": {"labels": LABELS}})
        eventually(lambda: len(vacant.alive()) == 3, what="the surplus goes")
        vacant.change_set({"spec": {"paused": True}})
        eventually(lambda: vacant.condition("ReplicaPaused"), what="paused")
        vacant.change_set({"spec": {"paused": False, "replicas": 1}})
        vacant.wait_for(1)
        eventually(lambda: vacant.reasons()["SuccessfulResumed"], what="the Events arrive")
        assert program.stop() == 0
    user = f"system:serviceaccount:{vacant.namespace}:{ACCOUNT}"
    asked = [record for record in vacant.plane.audit_records(vacant.since) if record.username == user]
    refused = {(r.verb, r.resource, r.subresource, r.code) for r in asked if r.code in (401, 403)}
    assert refused == set()
    needed = {
        (p.verb, p.resource, p.subresource) for p in permissions_needed(Config()) if p.subresource != "finalizers"
    }
    used = {(record.verb, record.resource, record.subresource) for record in asked if record.resource}
    told = "nothing is asked for that the whole scenario does not use, lists apart: a streaming one is a watch"
    assert {row for row in needed - used if row[0] != "list"} <= {
        ("get", "virtualmachineinstances", ""),
        ("patch", "events", ""),
    }, told
