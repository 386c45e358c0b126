"""Validation of replica sets by the API server, before the controller sees them (R1, R13).

The rules that sets share with pools have their tests in test_validation.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cluster import DryRun, Kubectl
from tests.controlplane.waits import eventually
from tests.manifests.documents import ABSENT, REPLICASETS, SETS, load

pytestmark = pytest.mark.cluster

SPEC = "spec.template.spec"
DISKS = f"{SPEC}.domain.devices.disks"
ACCEPTED: dict[str, Mapping[str, Any]] = {
    "a volume named by volumeName": {DISKS: [{"name": "x", "volumeName": "root", "disk": None}]},
    "a volumeName that is null": {DISKS: [{"name": "root", "volumeName": None}]},
    "a volumeName that is empty": {DISKS: [{"name": "root", "volumeName": ""}]},
    "a volume named by volumeName alone": {DISKS: [{"volumeName": "root"}]},
    "a registryDisk": {f"{SPEC}.volumes": [{"name": "root", "registryDisk": {"image": "cirros"}}]},
    "names in the template that are null": {
        "spec.template.metadata.name": None,
        "spec.template.metadata.generateName": None,
    },
}


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_an_old_set_is_accepted_without_a_warning(dry: DryRun, changes: Mapping[str, Any]) -> None:
    """R13: the API server accepts old fields."""
    assert dry.warnings(SETS(changes)) == []


def test_an_old_disk_without_volume_is_refused(dry: DryRun) -> None:
    disks = {DISKS: [{"name": "root", "volumeName": "data", "disk": None}]}
    message = f'{DISKS}: Invalid value: no volume is named ["data"]: each disk must have the name of one of'
    assert dry.refuses(SETS(disks), message)


def test_a_mistake_is_reported_once(dry: DryRun) -> None:
    bad = SETS({"spec.selector.matchLabels": {"app": "db"}})
    assert len(dry.refusal(bad)) == 1


@pytest.mark.parametrize("replicas", [ABSENT, None], ids=["absent", "null"])
def test_replicas_default_to_one(kubectl: Kubectl, replicas: object) -> None:
    kubectl.create(SETS({"spec.replicas": replicas}))
    assert kubectl.json("get", "vmirs", "web")["spec"]["replicas"] == 1


GROUP = "older.vmherd.dev"
OLDER_THAN_ITS_RULES: dict[str, Mapping[str, Any]] = {
    "empty selector": {"spec.selector": {}},
    "selector of other labels": {"spec.selector.matchLabels": {"app": "db"}},
    "no labels": {"spec.template.metadata.labels": ABSENT},
    "no selector": {"spec.selector": ABSENT},
    "no template": {"spec.template": ABSENT},
    "no domain": {f"{SPEC}.domain": ABSENT},
    "volume without name": {f"{SPEC}.volumes": [{"emptyDisk": {}}]},
    "disk without volume": {f"{SPEC}.volumes": []},
}
FLAWED_AS_A_WHOLE = {"selector of other labels", "no labels", "no selector", "no template"}


@pytest.fixture
def older(kubectl: Kubectl) -> Iterator[Kubectl]:
    """Store the sets of OLDER_THAN_ITS_RULES while the definition has no validation rules. Then add the rules."""
    definition = load(REPLICASETS)
    definition["metadata"]["name"] = f"virtualmachineinstancereplicasets.{GROUP}"
    definition["spec"] |= {"group": GROUP, "names": definition["spec"]["names"] | {"shortNames": [], "categories": []}}
    definition["spec"]["versions"] = definition["spec"]["versions"][:1]
    [version] = definition["spec"]["versions"]
    rules = version["schema"]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    crd = ("crd", definition["metadata"]["name"])
    kubectl.create(definition)
    try:
        kubectl("wait", "--for=condition=Established", *crd)
        for name, changes in OLDER_THAN_ITS_RULES.items():
            document = SETS({**changes, "apiVersion": f"{GROUP}/v1", "metadata.name": name.replace(" ", "-")})
            kubectl("create", "--validate=ignore", "-f", "-", stdin=document)
        version["schema"] = rules
        kubectl("replace", "-f", "-", stdin=definition)
        kubectl("wait", "--for=condition=Established", *crd)
        probe = SETS({"apiVersion": f"{GROUP}/v1", "spec.selector": {}})
        tried = ("create", "--dry-run=server", "-f", "-")
        eventually(lambda: kubectl(*tried, stdin=probe, check=False).returncode, what="the rules are in force")
        yield kubectl
    finally:
        kubectl("delete", *crd, "--wait=false")


@pytest.mark.newest
def test_a_set_that_is_older_than_the_rules_can_be_labelled_reported_and_deleted(older: Kubectl) -> None:
    """R1, R11: the controller reports a stored invalid set, and can write its status."""
    for name in OLDER_THAN_ITS_RULES:
        target = (f"virtualmachineinstancereplicasets.{GROUP}", name.replace(" ", "-"))
        older("label", *target, "seen=true")
        older("patch", *target, "--subresource=status", "--type=merge", "-p", '{"status": {"observedGeneration": 1}}')
        scaled = older("scale", *target, "--replicas=0", check=False)
        assert (scaled.returncode != 0) == (name in FLAWED_AS_A_WHOLE), scaled.stderr
        older("delete", *target)
