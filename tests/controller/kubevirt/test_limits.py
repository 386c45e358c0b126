"""P30: the limits of a spec. Each error names the path and the limit, and costs a bounded time."""

from typing import Any

import msgspec
import pytest

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.limits import (
    MOST_ANNOTATIONS,
    MOST_LEVELS,
    MOST_NAMED,
    MOST_QUANTITIES,
    MOST_VALUES,
    TEMPLATE_LIMIT,
)
from controller.kubevirt.merge_keys import NAMED_LISTS
from controller.pool.members.revisions import template_of
from controller.pool.spec.intent import Intent, parse_intent
from controller.replicaset import intent as sets
from tests import builders
from tests.pool_builders import LABELS, pool, revision, vm_spec

VM = "spec.virtualMachineTemplate.spec"
VMI = f"{VM}.template.spec"
AT_PLACE = {"dataVolumeTemplates": (), **dict.fromkeys(("volumes", "networks"), ("template", "spec"))}


def nested(levels: int) -> dict[str, Any]:
    return {"x": nested(levels - 1)} if levels else {}


def spec_with(value: object, *path: str) -> dict[str, Any]:
    """A VM spec with the value at the path below the VMI spec."""
    spec = vm_spec()
    place = spec["template"]["spec"]
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = value
    return spec


def of_list(name: str, number: int) -> dict[str, Any]:
    path = AT_PLACE.get(name, ("template", "spec", "domain", "devices"))
    place = spec = vm_spec()
    for step in path:
        place = place[step]
    place[name] = [{"name": f"n{each}", "metadata": {"name": f"n{each}"}} for each in range(number)]
    return spec


QUANTITIES = {f"r{each}": "1" for each in range(MOST_QUANTITIES + 1)}
OVER: dict[str, tuple[dict[str, Any], str]] = {
    "bytes": (spec_with("x" * TEMPLATE_LIMIT, "text"), f"{VM} has 131"),
    "levels": (spec_with(nested(MOST_LEVELS), "deep"), f"a template may have {MOST_LEVELS} levels"),
    "more levels than a decoder reads": (spec_with(nested(900), "deep"), f"{MOST_LEVELS} levels"),
    "values": (spec_with([0] * MOST_VALUES, "many"), f"a template may have {MOST_VALUES} values"),
    "quantities": (
        spec_with(QUANTITIES, "domain", "resources", "requests"),
        f"is too much: a template may have {MOST_QUANTITIES} quantities",
    ),
    **{
        name: (of_list(name, MOST_NAMED + 1), f".{name} has {MOST_NAMED + 1} elements: at most {MOST_NAMED} are")
        for name in NAMED_LISTS
    },
}
REQUESTS = ("domain", "resources", "requests", "memory")
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a quantity": (spec_with("64MB", *REQUESTS), f'{VMI}.domain.resources.requests.memory is "64MB": it must be a'),
    "an integer": (spec_with(2**63, "terminationGracePeriodSeconds"), "it must be an integer of 64 bits"),
    "a label key of the VMI": (
        {**vm_spec(), "template": {"metadata": {"labels": {**LABELS, "my team": "a"}}, "spec": {"domain": {}}}},
        f'{VM}.template.metadata.labels: "my team" is no valid key',
    ),
}


def message_of(error: object) -> str:
    assert isinstance(error, FieldError), "the spec is invalid"
    return error.message


@pytest.mark.parametrize("what", OVER)
def test_p30_a_template_over_a_limit_is_invalid_and_a_revision_with_it_cannot_be_read(what: str) -> None:
    spec, message = OVER[what]
    owner = pool(spec=spec)
    assert message in message_of(parse_intent(owner))
    assert len(message_of(parse_intent(owner))) < 300, "one line"
    assert template_of(revision(owner)) is None


@pytest.mark.parametrize("what", WRONG)
def test_p30_a_wrong_value_stops_a_spec_and_no_revision(what: str) -> None:
    spec, message = WRONG[what]
    owner = pool(spec=spec)
    assert message in message_of(parse_intent(owner))
    assert template_of(revision(owner)) is not None


@pytest.mark.parametrize("name", NAMED_LISTS)
def test_p30_256_elements_of_a_list_are_allowed(name: str) -> None:
    assert isinstance(parse_intent(pool(spec=of_list(name, MOST_NAMED))), Intent)


def test_p30_values_at_the_limits_are_allowed() -> None:
    # Of the levels, three are above the VMI spec's fields: the template, its spec, and the VMI template with its spec.
    assert isinstance(parse_intent(pool(spec=spec_with(nested(MOST_LEVELS - 4), "deep"))), Intent)
    assert isinstance(parse_intent(pool(spec=spec_with(2**63 - 1, "terminationGracePeriodSeconds"))), Intent)
    assert isinstance(parse_intent(pool(spec=spec_with(1e300, "unknown"))), Intent), "the server stores it like this"


@pytest.mark.parametrize("key", ["k" * 16_000, "a b", "-", "a/b/c", "Ü"])
def test_p30_keys_that_the_server_would_refuse_are_named_and_cut(key: str) -> None:
    for owner in (pool(template_annotations={key: ""}), pool(template_annotations={"Example.ORG/Ok": "", key: ""})):
        message = message_of(parse_intent(owner))
        assert message.startswith(f'spec.virtualMachineTemplate.metadata.annotations: "{key[:64]}')
        assert len(message) < 300
    assert isinstance(parse_intent(pool(template_annotations={"Example.ORG/Ok": ""})), Intent)


def test_p30_all_annotations_have_the_size_that_kubernetes_allows() -> None:
    largest = "x" * (MOST_ANNOTATIONS - len("a/b"))
    assert isinstance(parse_intent(pool(template_annotations={"a/b": largest})), Intent)
    too_large = parse_intent(pool(template_annotations={"a/b": f"{largest}x"}))
    assert f"annotations has {MOST_ANNOTATIONS + 1} bytes" in message_of(too_large)


def test_p30_a_path_of_a_user_is_cut_in_the_message() -> None:
    spec = spec_with({"y" * 90: [{"z": "64MB"}], "quantity": {}}, "k" * 9_000)
    spec["template"]["spec"]["domain"]["resources"] = {"requests": {"r" * 5_000: "64MB"}}
    message = message_of(parse_intent(pool(spec=spec)))
    assert message.startswith(f"{VMI}.domain.resources.requests.{'r' * 24}... is ")
    assert len(message) < 300


def test_p30_sets_have_the_same_limits_and_a_template_that_is_too_large_is_not_read() -> None:
    no_json = builders.replicaset(spec=b"{" + b" " * TEMPLATE_LIMIT)
    assert f"has 131073 bytes: at most {TEMPLATE_LIMIT} are allowed" in message_of(sets.parse_intent(no_json))
    for spec, message in (
        ({"domain": {"devices": {"gpus": [{"name": f"g{n}"} for n in range(257)]}}}, "devices.gpus has 257 elements"),
        ({"domain": {"resources": {"requests": {"memory": "2 gb"}}}}, 'requests.memory is "2 gb"'),
        ({"domain": {}, "deep": nested(70)}, "is too much"),
    ):
        assert message in message_of(sets.parse_intent(builders.replicaset(spec=msgspec.json.encode(spec))))
