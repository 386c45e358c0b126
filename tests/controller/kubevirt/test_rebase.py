"""From one template to the next (P12): what a VM has of its own survives, what the templates differ in arrives."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kubevirt.rebase import rebase
from tests.memoryapi import merged
from tests.strategies import json_values

Json: TypeAlias = dict[str, Any]

OWN = {"name": "vm-0", "uid": "uid-of-the-vm", "resourceVersion": "42", "finalizers": ["example.org/theirs"]}


def vm(spec: Json, **metadata: object) -> Json:
    return {"kind": "VirtualMachine", "metadata": {**OWN, **metadata}, "spec": spec, "status": {"ready": True}}


def shape(spec: Json, **metadata: object) -> Json:
    """What a template says."""
    return {"metadata": metadata, "spec": spec}


def patch_of(current: Json, old: Json, new: Json) -> Json | None:
    body = rebase(*(msgspec.json.encode(each) for each in (current, old, new)))
    return None if body is None else msgspec.json.decode(body)


def rebased(current: Json, old: Json, new: Json) -> Json:
    """The object as the server has it after the patch."""
    patch = patch_of(current, old, new)
    return current if patch is None else merged(current, patch)


def rebased_spec(current: Json, old: Json, new: Json) -> Json:
    return rebased(vm(current), shape(old), shape(new))["spec"]


def canonical(value: object) -> bytes:
    """JSON with its fields in one order: what is equal here is equal on the wire, and true is not 1."""
    return msgspec.json.encode(value, order="sorted")


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [without_nulls(inner) for inner in value] if isinstance(value, list) else value


def machine(**fields: object) -> Json:
    return {"template": {"spec": fields}}


def devices(**lists: object) -> Json:
    return machine(domain={"devices": lists})


names = st.sampled_from("abcdef")
labels = st.dictionaries(st.sampled_from(["app", "tier", "zone", "disks"]), st.sampled_from(["1", "2"]), max_size=3)
bus = st.sampled_from(["virtio", "sata"])
disks = st.one_of(
    st.fixed_dictionaries({"disk": st.fixed_dictionaries({"bus": bus})}, optional={"bootOrder": st.integers(1, 3)}),
    st.fixed_dictionaries({"cdrom": st.fixed_dictionaries({"bus": bus})}),
    st.fixed_dictionaries({"serial": names}),
)
volumes = st.one_of(
    st.fixed_dictionaries({"dataVolume": st.fixed_dictionaries({"name": names})}),
    st.fixed_dictionaries({"containerDisk": st.fixed_dictionaries({"image": names})}),
    st.fixed_dictionaries({"persistentVolumeClaim": st.fixed_dictionaries({"claimName": names})}),
)
interfaces = st.one_of(
    st.fixed_dictionaries({"bridge": st.just({})}, optional={"model": names}),
    st.fixed_dictionaries({"masquerade": st.just({})}, optional={"ports": st.just([{"port": 80}])}),
)
networks = st.one_of(
    st.fixed_dictionaries({"pod": st.just({})}),
    st.fixed_dictionaries({"multus": st.fixed_dictionaries({"networkName": names})}),
)


def lists_of(elements: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    """Elements with a name each, in any order."""
    pairs = st.lists(st.tuples(names, elements), unique_by=lambda pair: pair[0], max_size=4)
    return pairs.map(lambda pairs: [{"name": name, **element} for name, element in pairs])


data_volumes = st.lists(names, unique=True, max_size=3).flatmap(
    lambda chosen: st.tuples(*(st.sampled_from(["1Gi", "2Gi"]) for _ in chosen)).map(
        lambda sizes: [
            {"metadata": {"name": name}, "spec": {"storage": size}} for name, size in zip(chosen, sizes, strict=True)
        ]
    )
)
powers = st.sampled_from(
    [{}, {"running": True}, {"running": False}, {"runStrategy": "Always"}, {"runStrategy": "Manual"}]
)
machines = st.fixed_dictionaries(
    {},
    optional={
        "domain": st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.dictionaries(st.sampled_from(["cores", "sockets"]), st.integers(1, 2), max_size=2),
                "firmware": st.just({"bootloader": {"efi": {}}}) | st.just({}),
                "devices": st.fixed_dictionaries(
                    {}, optional={"disks": lists_of(disks), "interfaces": lists_of(interfaces)}
                ),
            },
        ),
        "volumes": lists_of(volumes),
        "networks": lists_of(networks),
        "nodeSelector": labels,
        "tolerations": st.lists(st.fixed_dictionaries({"key": names}), max_size=2),
        "unknown": json_values,
    },
)


@st.composite
def shapes(draw: st.DrawFn) -> Json:
    """A VM's part in a template, or in somebody's hands."""
    spec: Json = dict(draw(powers))
    for field, strategy in (("dataVolumeTemplates", data_volumes), ("unknown", json_values), ("instancetype", labels)):
        if draw(st.booleans()):
            spec[field] = draw(strategy)
    spec["template"] = {"metadata": {"labels": draw(labels)}, "spec": draw(machines)}
    made = shape(spec, labels=draw(labels), annotations=draw(labels))
    return msgspec.json.decode(msgspec.json.encode(made), type=dict[str, Any])  # infinity is no JSON


# What holds for all documents


@given(shapes(), shapes())
def test_p12_a_vm_that_nobody_touched_becomes_what_the_new_template_makes(old: Json, new: Json):
    after = rebased(vm(old["spec"], **old["metadata"]), old, new)
    wanted = without_nulls(new)
    assert canonical(without_nulls(after["spec"])) == canonical(wanted["spec"])
    for field in ("labels", "annotations"):
        assert after["metadata"].get(field, {}) == wanted["metadata"][field]


@given(json_values, shapes())
def test_p12_where_the_templates_agree_nothing_is_sent(spec: Any, template: Json):
    assert patch_of(vm(spec), template, deepcopy(template)) is None


@given(shapes(), shapes(), shapes())
def test_p12_a_second_time_nothing_is_sent(current: Json, old: Json, new: Json):
    after = rebased(vm(current["spec"], **current["metadata"]), old, new)
    assert patch_of(after, old, new) is None


@given(shapes(), shapes(), shapes())
def test_p12_what_is_no_templates_business_stays(current: Json, old: Json, new: Json):
    before = vm(current["spec"], **current["metadata"])
    after = rebased(before, old, new)
    for kept in ("kind", "status"):
        assert after[kept] == before[kept]
    assert {name: after["metadata"][name] for name in OWN} == OWN


plain = st.recursive(
    st.integers(0, 2) | st.booleans() | st.none() | st.text("ab", max_size=1),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from("abc"), plain, max_size=3)


def assert_agreed_stays(current: Any, after: Any, old: Any, new: Any) -> None:
    if canonical(old) == canonical(new):
        assert canonical(current) == canonical(after)
    elif all(isinstance(each, dict) for each in (current, after)):
        old, new = (each if isinstance(each, dict) else {} for each in (old, new))
        for name in {*current, *after}:
            assert_agreed_stays(*(each.get(name) for each in (current, after, old, new)))


@given(objects, objects, objects)
def test_p12_what_the_templates_agree_on_stays_wherever_it_is(current: Json, old: Json, new: Json):
    current, old, new = map(without_nulls, (current, old, new))
    assert_agreed_stays(current, rebased_spec(current, old, new), old, new)


@given(objects, objects, objects)
def test_p12_a_value_that_the_template_changed_arrives_whatever_somebody_made_of_it(
    current: Json, old: Json, new: Json
):
    current, old, new = map(without_nulls, (current, old, new))
    after = rebased_spec(current, old, new)
    for name in {*old, *new}:
        values = old.get(name), new.get(name)
        if values[0] != values[1] and not any(isinstance(value, dict) for value in values):
            assert canonical(after.get(name)) == canonical(values[1])


HOT_DISK = {"name": "hot", "disk": {"bus": "scsi"}, "serial": "hot"}
HOT_VOLUME = {"name": "hot", "dataVolume": {"name": "hot", "hotpluggable": True}}
OWN_NETWORK = {"name": "own", "multus": {"networkName": "vlan-7"}}
OWN_INTERFACE = {"name": "own", "bridge": {}}


def put_in(data: st.DataObject, holder: Json, field: str, element: Json) -> None:
    """Add an element to a list, anywhere."""
    elements = holder.setdefault(field, [])
    elements.insert(data.draw(st.integers(0, len(elements)), label=field), deepcopy(element))


def take_out(holder: Json, field: str, element: Json, wanted: Json) -> None:
    """Take an element out of a list, and the list if it is no part of the template."""
    assert element in holder[field], f"{element['name']} was lost"
    holder[field].remove(element)
    if not holder[field] and field not in wanted:
        del holder[field]


@given(st.data(), shapes(), shapes())
def test_p12_what_a_vm_has_of_its_own_survives_and_all_else_is_as_in_the_new_template(
    data: st.DataObject, old: Json, new: Json
):
    old, new = without_nulls(old), without_nulls(new)
    for each in (old, new):
        each["spec"]["template"]["spec"].setdefault("domain", {}).setdefault("devices", {})
    current = vm(deepcopy(old["spec"]), labels={**old["metadata"]["labels"], "theirs": "x"})
    current["metadata"]["annotations"] = {**old["metadata"]["annotations"], "theirs": "y"}
    inner = current["spec"]["template"]["spec"]
    own = {"uuid": "5d307ca9", "serial": "e4686d2c"}
    inner["domain"].setdefault("firmware", {}).update(own)
    inner["domain"]["machine"] = {"type": "q35"}
    inner["theirs"] = [1]
    put_in(data, inner["domain"]["devices"], "disks", HOT_DISK)
    put_in(data, inner, "volumes", HOT_VOLUME)
    put_in(data, inner["domain"]["devices"], "interfaces", OWN_INTERFACE)
    put_in(data, inner, "networks", OWN_NETWORK)

    after = deepcopy(rebased(current, old, new))
    assert after["metadata"]["labels"] == {**new["metadata"]["labels"], "theirs": "x"}
    assert after["metadata"]["annotations"] == {**new["metadata"]["annotations"], "theirs": "y"}
    inner, wanted = after["spec"]["template"]["spec"], new["spec"]["template"]["spec"]
    firmware = inner["domain"]["firmware"]
    assert {name: firmware.pop(name) for name in own} == own
    if not firmware and "firmware" not in wanted["domain"]:
        del inner["domain"]["firmware"]
    assert inner["domain"].pop("machine") == {"type": "q35"}
    assert inner.pop("theirs") == [1]
    take_out(inner["domain"]["devices"], "disks", HOT_DISK, wanted["domain"]["devices"])
    take_out(inner, "volumes", HOT_VOLUME, wanted)
    take_out(inner["domain"]["devices"], "interfaces", OWN_INTERFACE, wanted["domain"]["devices"])
    take_out(inner, "networks", OWN_NETWORK, wanted)
    assert canonical(after["spec"]) == canonical(new["spec"])


@given(shapes(), shapes(), shapes())
def test_p12_a_rebased_vm_never_has_two_where_kubevirt_takes_one(current: Json, old: Json, new: Json):
    spec = rebased(vm(current["spec"], **current["metadata"]), old, new)["spec"]
    inner = spec["template"]["spec"]
    assert not ("running" in spec and "runStrategy" in spec)
    for element in (*(inner.get("volumes") or ()), *(inner.get("networks") or ())):
        assert len(element) == 2, "a name and a source"
    held = (inner.get("domain") or {}).get("devices") or {}
    assert all(not ("disk" in disk and "cdrom" in disk) for disk in held.get("disks") or ())
    assert all(("bridge" in each) != ("masquerade" in each) for each in held.get("interfaces") or ())


# One thing each


def test_p12_the_patch_is_tied_to_what_was_read():
    patch = patch_of(vm({"a": 1}), shape({"a": 1}), shape({"a": 2}))
    assert patch == {"metadata": {"uid": "uid-of-the-vm", "resourceVersion": "42"}, "spec": {"a": 2}}


def test_p12_the_patch_is_the_difference_only():
    old, new = ({**machine(domain={"cpu": {"cores": cores}}), "kept": {"x": [1]}} for cores in (1, 2))
    patch = patch_of(vm(old), shape(old, labels={"a": "1"}), shape(new, labels={"a": "1"}))
    assert patch is not None
    assert patch["spec"] == {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}
    assert patch["metadata"].keys() == {"uid", "resourceVersion"}


def test_p12_a_label_that_the_template_drops_goes_and_others_stay():
    after = rebased(vm({}, labels={"a": "1", "theirs": "2"}), shape({}, labels={"a": "1"}), shape({}, labels={}))
    assert after["metadata"]["labels"] == {"theirs": "2"}


def test_p12_labels_are_given_to_a_vm_that_has_none():
    after = rebased(vm({}), shape({}), shape({}, labels={"a": "1"}, annotations={"b": "2"}))
    assert (after["metadata"]["labels"], after["metadata"]["annotations"]) == ({"a": "1"}, {"b": "2"})


def test_p12_defaults_that_kubevirt_filled_in_stay():
    filled = {"cpu": {"cores": 1}, "firmware": {"uuid": "u"}, "machine": {"type": "q35"}}
    current = machine(architecture="amd64", domain=filled)
    after = rebased_spec(
        current,
        machine(domain={"cpu": {"cores": 1}}),
        machine(domain={"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}}),
    )
    assert after == machine(architecture="amd64", domain={**filled, "cpu": {"cores": 2}, "memory": {"guest": "1Gi"}})


def test_p12_a_firmware_that_the_template_drops_keeps_the_identity():
    current = machine(domain={"firmware": {"bootloader": {"efi": {}}, "uuid": "u", "serial": "s"}})
    old = machine(domain={"firmware": {"bootloader": {"efi": {}}}})
    assert rebased_spec(current, old, machine(domain={})) == machine(domain={"firmware": {"uuid": "u", "serial": "s"}})


def test_p12_a_mac_address_stays_where_the_interface_changes():
    mac = {"macAddress": "02:00:00:00:00:01"}
    after = rebased_spec(
        devices(interfaces=[{"name": "default", "masquerade": {}, **mac}]),
        devices(interfaces=[{"name": "default", "masquerade": {}}]),
        devices(interfaces=[{"name": "default", "masquerade": {}, "model": "e1000"}]),
    )
    assert after == devices(interfaces=[{"name": "default", "masquerade": {}, **mac, "model": "e1000"}])


def test_p12_a_restored_volume_stays_while_other_things_change():
    restored = {"name": "root", "dataVolume": {"name": "restore-71-root"}}
    old, new = (
        machine(
            volumes=[
                {"name": "root", "dataVolume": {"name": "root-0"}},
                {"name": "tools", "containerDisk": {"image": i}},
            ]
        )
        for i in ("v1", "v2")
    )
    after = rebased_spec(machine(volumes=[restored, old["template"]["spec"]["volumes"][1]]), old, new)
    assert after["template"]["spec"]["volumes"] == [restored, {"name": "tools", "containerDisk": {"image": "v2"}}]


def test_p12_a_volume_whose_source_the_template_changed_has_that_source_alone():
    after = rebased_spec(
        machine(volumes=[{"name": "root", "persistentVolumeClaim": {"claimName": "restored"}}]),
        machine(volumes=[{"name": "root", "dataVolume": {"name": "root-0"}}]),
        machine(volumes=[{"name": "root", "dataVolume": {"name": "system-0"}}]),
    )
    assert after == machine(volumes=[{"name": "root", "dataVolume": {"name": "system-0"}}])


def test_p12_a_disk_that_becomes_a_cdrom_is_no_disk_any_more():
    after = rebased_spec(
        devices(disks=[{"name": "x", "disk": {"bus": "virtio", "readonly": True}, "cache": "none"}]),
        devices(disks=[{"name": "x", "disk": {"bus": "virtio"}}]),
        devices(disks=[{"name": "x", "cdrom": {"bus": "sata"}}]),
    )
    assert after == devices(disks=[{"name": "x", "cache": "none", "cdrom": {"bus": "sata"}}])


def test_p12_a_disk_that_the_template_drops_goes_whole():
    after = rebased_spec(
        devices(disks=[{"name": "x", "disk": {}, "cache": "none"}, {"name": "hot", "disk": {}}]),
        devices(disks=[{"name": "x", "disk": {}}]),
        devices(),
    )
    assert after == devices(disks=[{"name": "hot", "disk": {}}])


def test_p12_a_list_that_the_template_drops_goes_when_nothing_else_is_in_it():
    assert rebased_spec(devices(disks=[{"name": "x"}]), devices(disks=[{"name": "x"}]), devices()) == devices()


def test_p12_an_element_that_somebody_took_away_stays_away():
    """A disk that came back without its volume would be refused, and an empty disk in its place would be worse."""
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
def test_p12_elements_come_in_the_vms_order_unless_the_template_changed_it(
    current: str, old: str, new: str, after: str
):
    lists = [devices(disks=[{"name": name} for name in text.split()]) for text in (current, old, new, after)]
    assert rebased_spec(*lists[:3]) == lists[3]


def test_p12_data_volume_templates_are_told_apart_by_their_metadata():
    def templates(**sizes: str) -> Json:
        return {"dataVolumeTemplates": [{"metadata": {"name": n}, "spec": {"size": s}} for n, s in sizes.items()]}

    after = rebased_spec(templates(root="1", own="7", data="1"), templates(root="1", data="1"), templates(root="2"))
    assert after == templates(root="2", own="7")


def test_p12_the_source_of_a_data_volume_is_replaced_whole():
    def template(**source: object) -> Json:
        return {"dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"source": source}}]}

    after = rebased_spec(
        template(http={"url": "a", "secretRef": "theirs"}), template(http={"url": "a"}), template(blank={})
    )
    assert after == template(blank={})


@pytest.mark.parametrize("elements", [[{"serial": "1"}], [{"name": "x"}, {"name": "x"}], ["x"], "x"])
def test_p12_a_list_whose_elements_have_no_names_is_replaced_whole(elements: Any):
    new = devices(disks=[{"name": "y"}])
    assert rebased_spec(devices(disks=elements), devices(disks=[{"name": "x"}]), new) == new
    assert rebased_spec(devices(disks=[{"name": "x"}]), devices(disks=elements), new) == new
    assert rebased_spec(devices(disks=[{"name": "x"}]), new, devices(disks=elements)) == devices(disks=elements)


def test_p12_another_list_is_replaced_whole_once_the_template_changed_it():
    own, old, new = (machine(tolerations=[{"key": key}]) for key in ["own", "old", "new"])
    assert rebased_spec(own, old, new) == new


@pytest.mark.parametrize("field", ["instancetype", "preference"])
def test_p12_another_instance_type_comes_without_the_revision_of_the_one_before(field: str):
    current = {field: {"name": "small", "revisionName": "vm-0-small-1"}}
    assert rebased_spec(current, {field: {"name": "small"}}, {field: {"name": "large"}}) == {field: {"name": "large"}}
    same = {field: {"name": "small"}}
    assert rebased_spec(current, {**same, "x": 1}, {**same, "x": 2}) == {**current, "x": 2}


@pytest.mark.parametrize(
    ("current", "old", "new", "after"),
    [
        ({"runStrategy": "Halted"}, {"runStrategy": "Always"}, {"runStrategy": "Always"}, {"runStrategy": "Halted"}),
        ({"runStrategy": "Halted"}, {"runStrategy": "Always"}, {"runStrategy": "Manual"}, {"runStrategy": "Manual"}),
        ({"running": True}, {"running": True}, {"runStrategy": "Always"}, {"runStrategy": "Always"}),
        ({"running": False}, {"running": True}, {"runStrategy": "Always"}, {"running": False}),
        ({"runStrategy": "Halted"}, {"running": True}, {"runStrategy": "Always"}, {"runStrategy": "Halted"}),
        ({"runStrategy": "Always"}, {"running": True}, {"runStrategy": "Always"}, {"runStrategy": "Always"}),
        ({"runStrategy": "Manual"}, {"running": True}, {"running": False}, {"running": False}),
        ({"running": False}, {"running": True}, {"runStrategy": "Manual"}, {"runStrategy": "Manual"}),
        ({"running": True}, {"running": True}, {}, {}),
        ({}, {}, {"runStrategy": "Once"}, {"runStrategy": "Once"}),
    ],
)
def test_p12_a_vm_that_somebody_stopped_stays_so_unless_the_template_asks_for_something_else(
    current: Json, old: Json, new: Json, after: Json
):
    assert rebased_spec({**current, "x": 1}, {**old, "x": 1}, {**new, "x": 2}) == {**after, "x": 2}


def test_p12_without_an_old_template_all_that_the_new_one_says_is_new():
    current = {**devices(disks=[{"name": "x", "serial": "1"}, {"name": "hot"}]), "own": 1}
    after = rebased(vm(current), {}, shape(devices(disks=[{"name": "x", "serial": "2"}])))
    assert after["spec"] == {**devices(disks=[{"name": "x", "serial": "2"}, {"name": "hot"}]), "own": 1}


@pytest.mark.parametrize("number", ["123456789012345678901234567890", "-99999999999999999999", "1.0", "0.1", "1e-7"])
def test_p12_numbers_are_not_harmed(number: str):
    def disks(serial: str) -> bytes:
        return b'{"metadata":{},"spec":{"disks":[{"name":"x","n":%s},{"name":"y","s":"%s"}]}}' % (
            number.encode(),
            serial.encode(),
        )

    patch = rebase(disks("own"), disks("old"), disks("new"))
    assert patch is not None
    assert b'"n":%s}' % number.encode() in patch.replace(b"1e-07", b"1e-7")


@pytest.mark.parametrize(("old", "new"), [(True, 1), (0, False), ([1], [True])])
def test_p12_a_number_is_no_truth_value(old: object, new: object):
    assert canonical(rebased_spec({"x": old}, {"x": old}, {"x": new})) == canonical({"x": new})


def test_p12_null_is_absent_in_each_of_the_documents():
    assert patch_of(vm({"x": None, "y": 1}), shape({"y": None}), shape({"x": None})) is None
    assert rebased_spec({"x": 1}, {"x": 1}, {"x": None}) == {}
    assert rebased_spec({"x": None}, {"x": None}, {"x": {"y": None, "z": [None, {"q": None}]}}) == {
        "x": {"z": [None, {}]}
    }


@pytest.mark.parametrize("document", [b"", b"[]", b"null", b"{", b'{"n":1e999}'])
def test_what_is_no_object_is_an_error(document: bytes):
    with pytest.raises(msgspec.DecodeError):
        rebase(document, b"{}", b"{}")
