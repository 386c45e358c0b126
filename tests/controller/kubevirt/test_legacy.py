import msgspec
import pytest
from hypothesis import given

from controller.kubevirt.legacy import modernise
from tests.strategies import json_values


def modern(document: object) -> object:
    return msgspec.json.decode(modernise(msgspec.json.encode(document)))


def with_disks(*disks: object) -> dict:
    return {"domain": {"devices": {"disks": list(disks)}}}


DISKS = {
    "the volume's name wins": (
        {"disk": {}, "name": "registrydisk", "volumeName": "registryvolume"},
        {"disk": {}, "name": "registryvolume"},
    ),
    "a disk without a name gets one": ({"volumeName": "v", "disk": {}}, {"disk": {}, "name": "v"}),
    "an empty volumeName names nothing": ({"name": "d", "volumeName": "", "disk": {}}, {"name": "d", "disk": {}}),
    "a null volumeName names nothing": ({"name": "d", "volumeName": None, "disk": {}}, {"name": "d", "disk": {}}),
    "a null disk is one on the default bus": ({"name": "d", "disk": None}, {"name": "d", "disk": {}}),
    "a null disk beside a cdrom is no disk": (
        {"name": "d", "disk": None, "cdrom": {"bus": "sata"}},
        {"name": "d", "cdrom": {"bus": "sata"}},
    ),
    "unknown fields stay": (
        {"name": "d", "volumeName": "v", "disk": {"bus": "virtio"}, "bootOrder": 1, "later": {"x": [None]}},
        {"name": "v", "disk": {"bus": "virtio"}, "bootOrder": 1, "later": {"x": [None]}},
    ),
}


@pytest.mark.parametrize(("old", "new"), DISKS.values(), ids=DISKS)
def test_r13_a_disk_is_modernised(old, new):
    assert modern(with_disks(old)) == with_disks(new)


def test_r13_the_first_manifest_of_the_guide_is_modernised_completely():
    guide = {
        "domain": {
            "devices": {"disks": [{"disk": None, "name": "registrydisk", "volumeName": "registryvolume"}]},
            "resources": {"requests": {"memory": "64M"}},
        },
        "volumes": [{"name": "registryvolume", "registryDisk": {"image": "cirros"}}],
    }
    assert modern(guide) == {
        "domain": {
            "devices": {"disks": [{"disk": {}, "name": "registryvolume"}]},
            "resources": {"requests": {"memory": "64M"}},
        },
        "volumes": [{"name": "registryvolume", "containerDisk": {"image": "cirros"}}],
    }


SPECS = [
    b'{"domain": {"devices": {"disks": [{"disk": {"bus":"virtio"}, "name": "d"}]}}, "n": 1.10}',
    b'{"domain": {"devices": {"disks": "volumeName"}}, "volumes": [1, "registryDisk", {"name": "v"}]}',
    b'{"disk": null, "volumeName": "not a disk"}',
    b'["volumeName"]',
    b'"disk"',
    b"",
]


@pytest.mark.parametrize("spec", SPECS)
def test_r13_a_modern_spec_stays_byte_for_byte(spec):
    assert modernise(spec) == spec


@given(json_values)
def test_r13_any_document_can_be_modernised_and_a_second_time_changes_nothing(document):
    for spec in (document, with_disks(document), {"domain": document, "volumes": document}):
        once = modernise(msgspec.json.encode(spec))
        assert modernise(once) == once
