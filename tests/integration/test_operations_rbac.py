"""The exact permissions that the controller asks for are enough for all that it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.config import Config
from controller.permissions import permissions_needed
from tests.cluster import Kubectl
from tests.integration.herd import LABELS, Place, eventually, herd, owned_by
from tests.integration.ranch import Ranch, vm_template
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
    flags = (*SHORT_LEASE, "--revision-history=0")
    with herd(account_kubeconfig(vacant, tmp_path), tmp_path, *flags) as program:
        live_through_a_set(vacant, orphan)
        live_through_a_pool(Ranch(vacant.plane, vacant.namespace))
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
        ("get", "virtualmachinepools", ""),
        ("get", "controllerrevisions", ""),
        ("patch", "events", ""),
    }, told


def live_through_a_set(place: Place, orphan: dict[str, Any]) -> None:
    """Adopt, release, scale, pause: all that a set can come to."""
    owner = place.make_set(3)
    alive = place.wait_for(3)
    assert alive["orphan"]["metadata"]["uid"] == orphan["metadata"]["uid"]
    place.play_all()
    eventually(lambda: place.status().get("readyReplicas") == 3, what="all are ready")
    place.change_vmi("orphan", {"metadata": {"labels": {"app": None}}})
    eventually(lambda: len(owned_by(place.alive().values(), owner)) == 3 and len(place.alive()) == 4)
    place.change_vmi("orphan", {"metadata": {"labels": LABELS}})
    eventually(lambda: len(place.alive()) == 3, what="the surplus goes")
    place.change_set({"spec": {"paused": True}})
    eventually(lambda: place.condition("ReplicaPaused"), what="paused")
    place.change_set({"spec": {"paused": False, "replicas": 1}})
    place.wait_for(1)


def live_through_a_pool(ranch: Ranch) -> None:
    """Make VMs, bring them to another template, keep the disk of one that goes, and forget the old template."""
    strategy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": "Offline"}}
    ranch.make_pool(2, template=vm_template(disks=("root",)), scaleInStrategy=strategy)
    vms = ranch.wait_for_ordinals(0, 1, ready=False)
    ranch.make_disk("root-1", owner=vms["pool-1"])
    ranch.change_template(vm_template(disks=("root",), memory="128M"))
    eventually(lambda: set(ranch.revisions()) == {"pool-2"}, what="nobody needs the first template any more")
    ranch.scale(1)
    ranch.wait_for_ordinals(0, ready=False)
    kept = (ranch.data_volumes()["root-1"], ranch.claims()["root-1"])
    assert not any(disk["metadata"].get("ownerReferences") for disk in kept)
