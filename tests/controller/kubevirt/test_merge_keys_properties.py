"""Properties of a three-way merge for any VM and any templates (P12)."""

from copy import deepcopy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.controller.kubevirt.rebasing import (
    Json,
    canonical,
    meaning,
    patch_of,
    rebased,
    rebased_spec,
    shape,
    vm,
    without_nulls,
)
from tests.strategies import json_values

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
    """Elements with unique names, in any order."""
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
    """The spec of a template, or of a VM that a user has changed."""
    spec: Json = dict(draw(powers))
    for field, strategy in (("dataVolumeTemplates", data_volumes), ("unknown", json_values), ("instancetype", labels)):
        if draw(st.booleans()):
            spec[field] = draw(strategy)
    spec["template"] = {"metadata": {"labels": draw(labels)}, "spec": draw(machines)}
    made = shape(spec, labels=draw(labels), annotations=draw(labels))
    return msgspec.json.decode(msgspec.json.encode(made), type=dict[str, Any])  # infinity is not valid JSON


@given(shapes(), shapes())
def test_p12_an_unchanged_vm_becomes_equal_to_the_new_template(old: Json, new: Json):
    after = rebased(vm(old["spec"], **old["metadata"]), old, new)
    wanted = without_nulls(new)
    assert meaning(after["spec"]) == meaning(wanted["spec"])
    for field in ("labels", "annotations"):
        assert after["metadata"].get(field, {}) == wanted["metadata"][field]


@given(json_values, shapes())
def test_p12_nothing_is_sent_if_the_templates_are_equal(spec: Any, template: Json):
    assert patch_of(vm(spec), template, deepcopy(template)) is None


@given(shapes(), shapes(), shapes())
def test_p12_a_second_merge_sends_nothing(current: Json, old: Json, new: Json):
    assert patch_of(rebased(vm(current["spec"], **current["metadata"]), old, new), old, new) is None


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
def test_p12_values_that_are_equal_in_both_templates_stay(current: Json, old: Json, new: Json):
    current, old, new = map(without_nulls, (current, old, new))
    assert_agreed_stays(current, rebased_spec(current, old, new), old, new)


@given(objects, objects, objects)
def test_p12_a_value_that_the_template_changed_replaces_any_value_of_the_vm(current: Json, old: Json, new: Json):
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
    elements = holder.setdefault(field, [])
    elements.insert(data.draw(st.integers(0, len(elements)), label=field), deepcopy(element))


def take_out(holder: Json, field: str, element: Json, wanted: Json) -> None:
    """Remove an element from a list. If the list is then empty and not in the template, remove the list too."""
    assert element in holder[field], f"{element['name']} was lost"
    holder[field].remove(element)
    if not holder[field] and field not in wanted:
        del holder[field]


@given(st.data(), shapes(), shapes())
def test_p12_own_values_of_the_vm_stay_and_all_others_are_as_in_the_new_template(
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
    assert meaning(after["spec"]) == meaning(new["spec"])


@given(shapes(), shapes(), shapes())
def test_p12_a_merged_vm_never_has_two_fields_that_exclude_each_other(current: Json, old: Json, new: Json):
    spec = rebased(vm(current["spec"], **current["metadata"]), old, new)["spec"]
    inner = spec["template"]["spec"]
    assert not ("running" in spec and "runStrategy" in spec)
    for element in (*(inner.get("volumes") or ()), *(inner.get("networks") or ())):
        assert len(element) == 2, "a name and a source"
    held = (inner.get("domain") or {}).get("devices") or {}
    assert all(not ("disk" in disk and "cdrom" in disk) for disk in held.get("disks") or ())
    assert all(("bridge" in each) != ("masquerade" in each) for each in held.get("interfaces") or ())
