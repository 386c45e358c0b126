"""The normal form of a VM spec: two specs have the same form only if Go decodes them to equal values."""

import re

import pytest
from hypothesis import given

from controller.kubevirt.normal_form import VM_SPEC, VM_TEMPLATE, differences, is_same, normal_form
from tests.spelling import POOL_PATHS, paths_where_presence_matters, vm_specs, with_presence

KIND_OF = {
    "emptyMeansAbsent": {"struct"},
    "emptyListOrMapMeansAbsent": {"collection"},
    "zeroMeansAbsent": {"scalar", "cidr"},
    "quantities": {"quantity", "quantity-or-zero"},
    "presenceMatters": {""},
}


def in_vmi(value):
    return {"template": {"spec": value}}


def in_domain(value):
    return in_vmi({"domain": value})


def with_disk(**spec):
    return {"dataVolumeTemplates": [{"metadata": {"name": "data"}, "spec": spec}]}


def with_volume(volume):
    return in_vmi({"volumes": [{"name": "v", **volume}]})


def with_network(network):
    return in_vmi({"networks": [{"name": "n", **network}]})


def named(names):
    return [{"name": name} for name in names]


SAME = {
    "null is absent": ({"x": None}, {}),
    "null is absent in an unknown field": (in_vmi({"new": {"inner": None}}), in_vmi({"new": {}})),
    "resources is a struct": (in_domain({"resources": {}}), in_domain({})),
    "acpi is a struct": (in_domain({"features": {"acpi": {}}}), in_domain({"features": {}})),
    "devices that hold only what is empty": (in_domain({"devices": {"disks": []}}), in_domain({})),
    "resources of a disk": (with_disk(storage={"resources": {}}), with_disk(storage={})),
    "metadata as KubeVirt 1.7 writes it": ({"template": {"metadata": {"creationTimestamp": None}}}, {"template": {}}),
    "units": [with_disk(pvc={"resources": {"requests": {"storage": each}}}) for each in ("1024Mi", "1Gi")],
    "millis": [in_domain({"resources": {"requests": {"cpu": each}}}) for each in ("1000m", 1)],
    "zeros": [in_domain({"cpu": each}) for each in ({"cores": 0, "model": "", "dedicatedCpuPlacement": False}, {})],
    "an empty text without omitempty": [with_network({"multus": each}) for each in ({"networkName": ""}, {})],
    "a capacity that Go always writes": (with_volume({"hostDisk": {"capacity": "0"}}), with_volume({"hostDisk": {}})),
    "running": ({"running": True}, {"runStrategy": "Always"}),
    "not running": ({"running": False, "runStrategy": None}, {"runStrategy": "Halted"}),
    "the order of volumes": [in_vmi({"volumes": named(each)}) for each in ("ba", "ab")],
    "the order of dataVolumeTemplates": [
        {"dataVolumeTemplates": [{"metadata": name} for name in named(each)]} for each in ("ba", "ab")
    ],
    "addresses": [in_vmi({"dnsConfig": {"nameservers": [each]}}) for each in ("010.000.0.1", "10.0.0.1")],
}
DIFFERENT = {
    "rng": (in_domain({"devices": {"rng": {}}}), in_domain({})),
    "tpm": (in_domain({"devices": {"tpm": {}}}), in_domain({"devices": {}})),
    "pod network": (with_network({"pod": {}}), with_network({})),
    "blank": (with_disk(source={"blank": {}}), with_disk(source={})),
    "storage": (with_disk(storage={}), with_disk()),
    "a grace period of none": (in_vmi({"terminationGracePeriodSeconds": 0}), in_vmi({})),
    "a guest of no memory": (in_domain({"memory": {"guest": "0"}}), in_domain({"memory": {}})),
    "an empty value of an unknown field": (in_vmi({"new": {}}), in_vmi({})),
    "true and one": (in_vmi({"new": True}), in_vmi({"new": 1})),
    "running and not": ({"running": True}, {"running": False}),
    "nothing said about running": ({"running": False}, {}),
    "sizes": (in_domain({"memory": {"guest": "1Gi"}}), in_domain({"memory": {"guest": "1G"}})),
    "the order of disks": [in_domain({"devices": {"disks": named(each)}}) for each in ("ba", "ab")],
    "a name and an address": [in_vmi({"dnsConfig": {"nameservers": [each]}}) for each in ("a.b", "a.c")],
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_p12_two_spellings_of_a_value_are_the_same(one, other):
    assert normal_form(one, VM_SPEC) == normal_form(other, VM_SPEC)
    assert is_same(one, other, VM_SPEC)
    assert list(differences(one, other, VM_SPEC)) == []


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_p12_two_values_with_different_meanings_are_not_the_same(one, other):
    assert not is_same(one, other, VM_SPEC)
    assert list(differences(one, other, VM_SPEC))


@pytest.mark.parametrize("path", paths_where_presence_matters(), ids=".".join)
def test_p12_an_empty_object_has_a_meaning_if_the_go_field_is_a_pointer(path):
    spec = {"runStrategy": "Always", "template": {"spec": {}}}
    parent = with_presence(spec, path[:-1]) if len(path) > 1 else spec
    assert not is_same(parent, with_presence(spec, path), VM_SPEC)


@given(vm_specs())
def test_p12_a_normal_form_is_its_own_normal_form(spec):
    once = normal_form(spec, VM_SPEC)
    assert normal_form(once, VM_SPEC) == once


def kind_at(path):
    node = VM_TEMPLATE
    for part in re.findall(r"[^.\[\]{}]+|\[\]|\{\}", path):
        node = node.fields.get(part)
        if node is None:
            return ""
    return node.kind


@pytest.mark.parametrize("category", KIND_OF)
def test_p12_the_table_agrees_with_the_recorded_go_types_of_kubevirt(category):
    listed = [path for path in POOL_PATHS[category] if path.startswith("virtualMachineTemplate.")]
    kinds = {path: kind_at(path.removeprefix("virtualMachineTemplate.")) for path in listed}
    assert len(kinds) > 10
    assert {path: kind for path, kind in kinds.items() if kind not in KIND_OF[category]} == {}


def test_the_differences_name_the_fields():
    one = in_domain({"cpu": {"cores": 1}, "devices": {"disks": [{"name": "a"}, {"name": "b"}]}})
    other = in_domain(
        {"cpu": {"cores": 2}, "devices": {"disks": [{"name": "a"}, {"name": "b", "cache": "none"}], "rng": {}}}
    )
    assert list(differences(one, other, VM_SPEC)) == [
        "template.spec.domain.cpu.cores",
        "template.spec.domain.devices.disks[1].cache",
        "template.spec.domain.devices.rng",
    ]
