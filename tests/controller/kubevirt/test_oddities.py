"""Manifests that stay silent on the server: unknown fields, volumes and partitions without an effect."""

from typing import Any

import pytest
import yaml

from controller.kubevirt.oddities import oddities_in
from tests.pages.session import ROOT

EXAMPLES = [
    each
    for folder in ("manifests/examples", "docs/examples")
    for path in sorted((ROOT / folder).glob("*.yaml"))
    for each in yaml.safe_load_all(path.read_text())
    if each["kind"] in ("VirtualMachinePool", "VirtualMachineInstanceReplicaSet")
]


def pool(vmi_spec: dict[str, Any], *, partition: str = "0", **spec: Any) -> dict[str, Any]:
    machine = {"runStrategy": "Always", "template": {"metadata": {"labels": {"any": "a"}}, "spec": vmi_spec}}
    spec = {"replicas": 3, "virtualMachineTemplate": {"spec": machine}, **spec}
    return {"metadata": {"annotations": {"vmherd.dev/partition": partition}}, "spec": spec}


VMI = "spec.virtualMachineTemplate.spec.template.spec"
UNKNOWN = "is no field of KubeVirt 1.9, so it may have no effect"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (pool({"domain": {"memroy": {}}}), [f"{VMI}.domain.memroy {UNKNOWN}; did you mean memory?"]),
        ({"spec": {"template": {"spec": {"x": 1}}}}, [f"spec.template.spec.x {UNKNOWN}"]),
        (
            pool({"volumes": [{"name": "a"}, {"name": "a", "emptyDsk": {}}]}),
            [f"{VMI}.volumes[1].emptyDsk", "2 volumes"],
        ),
        (pool({"volumes": [{"name": "a", "containerDisk": {}}]}), ["the containerDisk of the volume a has no image"]),
        (
            pool({}, partition="3"),
            ["annotation vmherd.dev/partition is 3, and the ordinals of 3 VMs are usually lower"],
        ),
        (pool({}, partition="50%:10m,7"), ["annotation vmherd.dev/partition is 7"]),
        (pool({"nodeSelector": {"any.name/x": "y"}}, partition="2"), []),
        (pool({}, partition="7,0"), []),
        ({"spec": {"virtualMachineTemplate": [None, 7], "template": "no"}, "metadata": None}, []),
        ({}, []),
    ],
)
def test_each_oddity_has_a_text(manifest: dict[str, Any], said: list[str]):
    found = oddities_in(manifest)
    assert len(found) == len(said)
    assert all(text.startswith(begin) for text, begin in zip(found, said, strict=True))


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda each: each["metadata"]["name"])
def test_no_example_is_odd(manifest: dict[str, Any]):
    assert oddities_in(manifest) == ()
