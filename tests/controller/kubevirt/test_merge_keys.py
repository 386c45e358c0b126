"""P12: a template change reaches the VMs, and the values that users set on a VM stay."""

from typing import Any

import msgspec
import pytest

from controller.kubevirt.merge_keys import VM_RULES
from tests.controller.kubevirt.rebasing import Json, rebased_spec


def machine(**fields: object) -> Json:
    return {"template": {"spec": fields}}


def devices(**lists: object) -> Json:
    return machine(domain={"devices": lists})


MAC = {"macAddress": "02:00:00:00:00:01"}
TEMPLATE_CHANGES = {
    "a MAC address stays if the interface changes": (
        devices(interfaces=[{"name": "x", "masquerade": {}, **MAC}]),
        devices(interfaces=[{"name": "x", "masquerade": {}}]),
        devices(interfaces=[{"name": "x", "masquerade": {}, "model": "e1000"}]),
        devices(interfaces=[{"name": "x", "masquerade": {}, **MAC, "model": "e1000"}]),
    ),
    "an interface has only the new binding": (
        devices(interfaces=[{"name": "x", "sriov": {}, **MAC}]),
        devices(interfaces=[{"name": "x", "masquerade": {}}]),
        devices(interfaces=[{"name": "x", "bridge": {}}]),
        devices(interfaces=[{"name": "x", **MAC, "bridge": {}}]),
    ),
    "a volume has only the new source": (
        machine(volumes=[{"name": "root", "persistentVolumeClaim": {"claimName": "restored"}}]),
        machine(volumes=[{"name": "root", "dataVolume": {"name": "root-0"}}]),
        machine(volumes=[{"name": "root", "dataVolume": {"name": "system-0"}}]),
        machine(volumes=[{"name": "root", "dataVolume": {"name": "system-0"}}]),
    ),
    "a claim that a restore put into the VM stays if another volume and the memory change": (
        machine(volumes=[{"name": "root", "dataVolume": {"name": "restored"}}], domain={"memory": {"guest": "1Gi"}}),
        machine(volumes=[{"name": "root", "dataVolume": {"name": "root-0"}}], domain={"memory": {"guest": "1Gi"}}),
        machine(
            volumes=[{"name": "root", "dataVolume": {"name": "root-0"}}, {"name": "seed", "emptyDisk": {}}],
            domain={"memory": {"guest": "2Gi"}},
        ),
        machine(
            volumes=[{"name": "root", "dataVolume": {"name": "restored"}}, {"name": "seed", "emptyDisk": {}}],
            domain={"memory": {"guest": "2Gi"}},
        ),
    ),
    "a disk that becomes a CD-ROM loses its disk field": (
        devices(disks=[{"name": "x", "disk": {"bus": "virtio", "readonly": True}, "cache": "none"}]),
        devices(disks=[{"name": "x", "disk": {"bus": "virtio"}}]),
        devices(disks=[{"name": "x", "cdrom": {"bus": "sata"}}]),
        devices(disks=[{"name": "x", "cache": "none", "cdrom": {"bus": "sata"}}]),
    ),
    "a disk that the template drops is removed completely": (
        devices(disks=[{"name": "x", "disk": {}, "cache": "none"}, {"name": "hot", "disk": {}}]),
        devices(disks=[{"name": "x", "disk": {}}]),
        devices(),
        devices(disks=[{"name": "hot", "disk": {}}]),
    ),
    "a list that the template drops is removed if it is empty then": (
        devices(disks=[{"name": "x"}]),
        devices(disks=[{"name": "x"}]),
        devices(),
        devices(),
    ),
    "a firmware that the template drops keeps the identity": (
        machine(domain={"firmware": {"bootloader": {"efi": {}}, "uuid": "u", "serial": "s"}}),
        machine(domain={"firmware": {"bootloader": {"efi": {}}}}),
        machine(domain={}),
        machine(domain={"firmware": {"uuid": "u", "serial": "s"}}),
    ),
}


@pytest.mark.parametrize(("current", "old", "new", "merged"), TEMPLATE_CHANGES.values(), ids=TEMPLATE_CHANGES)
def test_p12_a_change_of_the_template_is_merged_into_the_spec(current, old, new, merged):
    assert rebased_spec(current, old, new) == merged


def test_p12_an_element_that_a_user_removed_is_not_added_again():
    """A user removed a disk and its volume. If the controller added only the disk again, KubeVirt would reject the VM.
    If the controller added the volume too, the new volume would be empty.
    """
    old, new = (devices(disks=[{"name": "x", "serial": "1"}, {"name": "y", "serial": n}]) for n in ("1", "2"))
    assert rebased_spec(devices(disks=[]), old, new) == devices(disks=[])


@pytest.mark.parametrize(
    ("current", "old", "new", "after"),
    [
        ("a b", "a b", "a x b", "a x b"),
        ("a b", "a b", "x a b", "x a b"),
        ("a b", "a b", "b a", "b a"),
        ("a hot b", "a b", "a x b", "a x hot b"),
        ("hot a b", "a b", "b a", "hot b a"),
        ("a hot b", "a b", "b a", "b a hot"),
        ("b a", "a b", "a b c", "b c a"),
        ("a hot b c", "a b c", "c", "hot c"),
        ("hot", "", "x y", "x y hot"),
    ],
)
def test_p12_elements_have_the_order_of_the_vm_unless_the_template_changed_the_order(
    current: str, old: str, new: str, after: str
):
    lists = [devices(disks=[{"name": name} for name in text.split()]) for text in (current, old, new, after)]
    assert rebased_spec(*lists[:3]) == lists[3]


@pytest.mark.parametrize("elements", [[{"serial": "1"}], [{"name": "x"}, {"name": "x"}], ["x"], "x"])
def test_p12_a_list_whose_elements_have_no_names_is_replaced_whole(elements: Any):
    new = devices(disks=[{"name": "y"}])
    assert rebased_spec(devices(disks=elements), devices(disks=[{"name": "x"}]), new) == new
    assert rebased_spec(devices(disks=[{"name": "x"}]), devices(disks=elements), new) == new
    assert rebased_spec(devices(disks=[{"name": "x"}]), new, devices(disks=elements)) == devices(disks=elements)


@pytest.mark.parametrize("field", ["instancetype", "preference"])
def test_p12_a_new_instance_type_drops_the_revision_of_the_old_one(field: str):
    current = {field: {"name": "small", "revisionName": "vm-0-small-1"}}
    assert rebased_spec(current, {field: {"name": "small"}}, {field: {"name": "large"}}) == {field: {"name": "large"}}
    same = {field: {"name": "small"}}
    assert rebased_spec(current, {**same, "x": 1}, {**same, "x": 2}) == {**current, "x": 2}


@pytest.mark.parametrize(
    ("current", "old", "new", "after"),
    [
        ({"runStrategy": "Halted"}, {"runStrategy": "Always"}, {"runStrategy": "Always"}, {"runStrategy": "Halted"}),
        ({"runStrategy": "Halted"}, {"runStrategy": "Always"}, {"runStrategy": "Manual"}, {"runStrategy": "Manual"}),
        ({"running": True}, {"running": True}, {"runStrategy": "Always"}, {"running": True}),
        ({"running": False}, {"running": True}, {"runStrategy": "Always"}, {"running": False}),
        ({"runStrategy": "Halted"}, {"running": True}, {"runStrategy": "Always"}, {"runStrategy": "Halted"}),
        ({"runStrategy": "Always"}, {"running": True}, {"runStrategy": "Always"}, {"runStrategy": "Always"}),
        ({"runStrategy": "Manual"}, {"running": True}, {"running": False}, {"running": False}),
        ({"running": False}, {"running": True}, {"runStrategy": "Manual"}, {"runStrategy": "Manual"}),
        ({"running": True}, {"running": True}, {}, {}),
        ({}, {}, {"runStrategy": "Once"}, {"runStrategy": "Once"}),
        ({"runStrategy": "Halted"}, {}, {"runStrategy": "Always"}, {"runStrategy": "Halted"}),
        ({"runStrategy": "Once"}, {}, {"runStrategy": "Always"}, {"runStrategy": "Always"}),
        ({"runStrategy": "Always"}, {}, {"runStrategy": "Halted"}, {"runStrategy": "Always"}),
        ({}, {"running": True}, {"runStrategy": "Always"}, {}),
    ],
)
def test_p12_a_vm_that_a_user_stopped_stays_stopped_unless_the_template_changes_its_strategy(
    current: Json, old: Json, new: Json, after: Json
):
    assert rebased_spec({**current, "x": 1}, {**old, "x": 1}, {**new, "x": 2}) == {**after, "x": 2}


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "-99999999999999999999", "1.0", "0.1", "1e-7"])
def test_p12_numbers_keep_their_exact_value(number: str):
    def disks(serial: str) -> bytes:
        return b'{"metadata":{},"spec":{"disks":[{"name":"x","n":%s},{"name":"y","s":"%s"}]}}' % (
            number.encode(),
            serial.encode(),
        )

    patch = VM_RULES.merge(disks("own"), disks("old"), disks("new"))
    assert patch is not None
    assert b'"n":%s}' % number.encode() in patch.replace(b"1e-07", b"1e-7")


@pytest.mark.parametrize("document", [b"", b"[]", b"null", b"{", b'{"n":1e999}'])
def test_a_document_that_is_not_an_object_is_an_error(document: bytes):
    with pytest.raises(msgspec.DecodeError):
        VM_RULES.merge(document, b"{}", b"{}")
