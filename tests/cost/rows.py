"""The rows of the cost test: calls of pure functions with foreign input of a given size.

Each function of this module with the decorator `row` makes the call for a size `n`. The input is built before the call,
so only the call is measured.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from controller.apimachinery import finalizers, label_selectors, names, quantities, raw_json
from controller.apimachinery.conditions import Condition, merge_conditions
from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement
from controller.apimachinery.redaction import redacted
from controller.kubevirt.annotations import INDEX_SYSPREP
from controller.kubevirt.legacy import modernise
from controller.kubevirt.merge_keys import VM_RULES
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMS
from controller.pool.spec.intent import parse_intent as parse_pool
from controller.pool.spec.template import describe_difference, disk_change, larger_disks
from controller.replicas.releases import Releases, plan_row
from controller.replicaset.intent import parse_intent as parse_set
from informers import errors, resource
from informers.http import warnings
from informers.meta import ObjectMeta, OwnerReference, controller_of
from informers.watch.parser import WatchParser, decode_page
from tests import builders
from tests import pool_builders as pools
from tests.cost.meter import Call

Json = dict[str, Any]


class Row(NamedTuple):
    """`make` returns the call for a size. Instructions are counted at `n`, 2 `n` and 4 `n`, and time at `far`."""

    make: Callable[[int], Call]
    n: int
    far: int


ROWS: Final[dict[str, Row]] = {}


def row(n: int, far: int, *variants: Any) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
    """Add a row, or a row for each of the variants, which are the second argument of the function."""

    def add(make: Callable[..., Call]) -> Callable[..., Call]:
        for variant in variants:
            ROWS[f"{make.__name__}[{variant}]"] = Row(lambda size, each=variant: make(size, each), n, far)
        if not variants:
            ROWS[make.__name__] = Row(make, n, far)
        return make

    return add


# Texts: messages, annotations, names.

PIECES: Final = {
    "letters": "a",
    "braces": "{",
    "open objects": '{"',
    "open lists": "[ {",
    "maps": "map[",
    "go structs": "&v1.X{A:",
    "dots": "a.",
    "spaces in braces": "x{ ",
    "quotas": "exceeded quota: a, requested: b, used: c, limited: d",
    "controls": "\x00",
}


@row(100, 200_000, *PIECES)
def message(n: int, piece: str) -> Call:
    body = msgspec.json.encode({"kind": "Status", "message": PIECES[piece] * (n // len(PIECES[piece]))})
    return lambda: errors.from_response(422, body)


@row(100, 200_000, '299 - "a', '299 - "a" ', '299 - "\\"', "299 ", "a")
def warning_header(n: int, piece: str) -> Call:
    def collect() -> None:
        with warnings.collected_warnings():
            warnings.collect([piece * (n // len(piece))])

    return collect


@row(50, 5_000)
def warning_headers(n: int) -> Call:
    def collect() -> None:
        with warnings.collected_warnings():
            warnings.collect([f'299 - "warning {number}"' for number in range(n)])

    return collect


@row(200, 100_000, "1", "1h", ".", "1.", " ")
def texts_of_numbers(n: int, piece: str) -> Call:
    text = piece * (n // len(piece))
    parsers = quantities.parse_quantity, quantities.parse_amount, quantities.parse_duration
    return lambda: [parse(text) for parse in parsers]


@row(200, 100_000, "a", "a.", "-", "a-")
def texts_of_names(n: int, piece: str) -> Call:
    text = piece * (n // len(piece))
    return lambda: [names.is_label(text), names.is_subdomain(text)]


@row(50, 2_000)
def names_in_use(n: int) -> Call:
    taken = {f"a-{suffix}" for suffix, _ in zip(names.suffixes("uid"), range(n), strict=False)}
    return lambda: next(names.free_suffixes("a-", "uid", taken=taken))


@row(50, 20_000, "userData", "other")
def redaction(n: int, field: str) -> Call:
    words = [f"word{number:05}x" for number in range(n)]
    body = msgspec.json.encode({field: " ".join(words), "list": [{"env": word} for word in words]})
    message = " ".join(words)[:1024]
    return lambda: redacted(message, body)


# Documents: objects on the server, templates.


def deep(n: int, leaf: object) -> Json:
    value: object = leaf
    for _ in range(n):
        value = {"x": value}
    return {"template": {"spec": value}}


def wide(names: Mapping[str, object], field: str) -> Json:
    elements = [{**({"metadata": {"name": name}} if field == "dataVolumeTemplates" else {"name": name}), "value": value}
                for name, value in names.items()]  # fmt: skip
    if field == "dataVolumeTemplates":
        return {"template": {"spec": {}}, field: elements}
    inside = {"domain": {"devices": {field: elements}}}
    return {"template": {"spec": {field: elements} if field in ("volumes", "networks") else inside}}


def vm(spec: Json) -> bytes:
    return msgspec.json.encode({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": spec})


@row(8, 120)
def merge_of_a_deep_template(n: int) -> Call:
    bulk = list(range(20 * n))
    old, new = vm(deep(n, {"leaf": 1, "bulk": bulk})), vm(deep(n, {"leaf": 2, "bulk": bulk}))
    return lambda: VM_RULES.merge(old, old, new)


MERGES: Final = {
    "added": ("none", "none", "all"),
    "added to others": ("other", "none", "all"),
    "others removed": ("other", "all", "last"),
    "turned": ("all", "all", "turned"),
    "changed": ("all", "all", "changed"),
    "removed": ("all", "all", "none"),
}


@row(20, 4_000, *MERGES)
def merge_of_a_wide_list(n: int, merge: str) -> Call:
    named = {format(number, "x"): number for number in range(n)}
    lists: dict[str, dict[str, object]] = {
        "none": {},
        "all": dict(named),
        "other": {f"c{name}": value for name, value in named.items()},
        "turned": dict(reversed(named.items())),
        "changed": {name: value + 1 for name, value in named.items()},
        "last": dict(list(named.items())[n // 2 :]),
    }
    documents = [vm(wide(lists[each], "volumes")) for each in MERGES[merge]]
    return lambda: VM_RULES.merge(*documents)


@row(20, 5_000)
def merge_of_many_fields(n: int) -> Call:
    old, new = ({"template": {"spec": {f"f{number}": {"v": v} for number in range(n)}}} for v in (1, 2))
    return lambda: VM_RULES.merge(vm(old), vm(old), vm(new))


def quantity_spec(n: int, unit: str) -> Json:
    requests = {f"r{number}": f"{number}{unit}" for number in range(n)}
    return {"template": {"spec": {"domain": {"resources": {"requests": requests}}}}}


def specs(n: int) -> dict[str, tuple[Json, Json]]:
    """Two VM specs of each kind with this size, which differ a little."""
    named = {format(number, "x"): number for number in range(n)}
    fields = ("gpus", "volumes", "dataVolumeTemplates")
    lists = {field: (wide(named, field), wide(dict(reversed(named.items())), field)) for field in fields}
    servers = [[f"{first}.0.{each // 250}.{each % 250}" for each in range(n)] for first in (10, 11)]
    one, other = ({"template": {"spec": {"dnsConfig": {"nameservers": each}}}} for each in servers)
    depth = min(n, 50)
    bulk = list(range(n))
    values: Json = {"template": {"spec": {f"f{number}": [number] for number in range(n)}}}
    return {
        **lists,
        "deep": (deep(depth, [1, bulk]), deep(depth, [2, bulk])),
        "addresses": (one, other),
        "quantities": (quantity_spec(n, "Mi"), quantity_spec(n, "Gi")),
        "many fields": (values, {"template": {"spec": {f"f{number}": [number + 1] for number in range(n)}}}),
        "long name": ({"x" * 10 * n: dict.fromkeys(named, "1")}, {"x" * 10 * n: dict.fromkeys(named, "2")}),
    }


SPECS: Final = tuple(specs(1))


def template(spec: Json, n: int) -> Json:
    """A valid template with this VM spec, and with many labels and annotations."""
    many = {f"key-{number}": "value" for number in range(n)}
    labels = {**pools.LABELS, **many}
    inner = {**pools.vm_spec()["template"], **spec.get("template", {}), "metadata": {"labels": labels}}
    return {"spec": {**spec, "runStrategy": "Always", "template": inner}, "labels": labels}


def pool_with(kind: str, n: int, which: int = 0, **more: Any) -> Pool:
    given = template(specs(n)[kind][which], n)
    annotations = {f"vmherd.dev/unknown-{number}": "" for number in range(n)}
    indexed = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}
    return pools.pool(
        spec=given["spec"],
        labels=given["labels"],
        template_annotations=annotations,
        annotations={INDEX_SYSPREP: "true"},
        nameGeneration=indexed,
        **more,
    )


@row(25, 1_000, *SPECS)
def intent_of_a_pool(n: int, kind: str) -> Call:
    owner = pool_with(kind, n)
    return lambda: parse_pool(owner)


@row(25, 240, *SPECS)
def differences_of_templates(n: int, kind: str) -> Call:
    one, other = (pools.intent_of(pool_with(kind, n, which)).template for which in (0, 1))
    return lambda: [describe_difference(one, other), disk_change(one, other), larger_disks(one, other)]


@row(25, 240)
def intents_with_wrong_values(n: int) -> Call:
    quantities_, name = quantity_spec(n, "Mi"), "x" * 100 * n
    quantities_["template"]["spec"]["domain"]["resources"]["requests"][name] = "64MB"
    by_quantity, by_key = pools.pool(spec=quantities_), pools.pool(template_annotations={name: "", f"{name}!": ""})
    return lambda: [parse_pool(by_quantity), parse_pool(by_key)]


@row(25, 1_000, *SPECS)
def intent_of_a_set(n: int, kind: str) -> Call:
    spec = specs(n)[kind][0].get("template", {}).get("spec", {})
    labels = {**builders.LABELS, **{f"key-{number}": "value" for number in range(n)}}
    owner = builders.replicaset(spec=msgspec.json.encode(spec), template_labels=labels, template_annotations=labels)
    return lambda: parse_set(owner)


@row(25, 2_000)
def old_spellings(n: int) -> Call:
    disks = [{"name": f"d{number}", "volumeName": f"v{number}", "disk": None} for number in range(n)]
    volumes = [{"name": f"v{number}", "registryDisk": {"image": "i"}} for number in range(n)]
    spec = msgspec.json.encode({"domain": {"devices": {"disks": disks}}, "volumes": volumes})
    return lambda: modernise(spec)


@row(25, 20_000)
def json_as_the_server_writes_it(n: int) -> Call:
    value = {f"<{number}>": ["&"] for number in range(n)}
    encoded = msgspec.json.encode({"a": {"b": value}})
    return lambda: [raw_json.encode_as_server(value), raw_json.change_at(encoded, ("a", "b"), lambda _: b"1")]


# The bytes of watches and lists.

DOCUMENTS: Final = {
    "objects": ('{"a":', "1", "}"),
    "lists": ("[", "", "]"),
    "elements": ("[],", "", ""),
    "texts": ('"\\"', "", ""),
    "open texts": ('"', "", ""),
    "escapes": ("\\", "", ""),
}


@row(100, 100_000, *DOCUMENTS)
def deep_values(n: int, kind: str) -> Call:
    first, middle, last = DOCUMENTS[kind]
    document = f"{first * n}{middle}{last * n}".encode()
    return lambda: resource.cut_deep_values(document)


@row(25, 2_000, "lines", "chunks", "errors", "broken lines")
def watch(n: int, kind: str) -> Call:
    event = {
        "lines": {"type": "ADDED", "object": {"metadata": {"name": "a", "labels": {"a": "b"}}}},
        "chunks": {"type": "ADDED", "object": {"metadata": {"name": "a" * n}}},
        "errors": {"type": "ERROR", "object": {"kind": "Status", "message": "a" * n}},
        "broken lines": {"type": "ADDED", "object": {"metadata": {"name": 1}}},
    }[kind]
    line = msgspec.json.encode(event) + b"\n"
    chunks = (
        [line[at : at + 1] for at in range(len(line))] if kind == "chunks" else [line * n if kind != "errors" else line]
    )
    parser = WatchParser(pools.POOLS)
    return lambda: [parser.feed(chunk) for chunk in chunks]


@row(25, 2_000)
def page_with_broken_objects(n: int) -> Call:
    body = msgspec.json.encode({"items": [{"metadata": {"name": 1}} for _ in range(n)]})
    return lambda: decode_page(pools.POOLS, body)


# Selectors, labels, finalizers and conditions.


def terms(n: int, operator: str) -> LabelSelector:
    many = tuple(f"v{number}" for number in range(n))
    if operator == "labels":
        return LabelSelector({f"key-{number}": "v" for number in range(n)})
    if operator in ("Exists", "DoesNotExist"):
        return LabelSelector(None, tuple(SelectorRequirement(f"key-{each}", operator) for each in many))
    return LabelSelector(None, (SelectorRequirement("a", operator, many), SelectorRequirement("b", operator, many)))


@row(20, 600, "labels", "Exists", "DoesNotExist", "In", "NotIn")
def selector_of_many_terms_and_many_objects(n: int, operator: str) -> Call:
    wire = terms(n, operator)
    labels = {**{f"key-{number}": "v" for number in range(5)}, "a": f"v{n - 1}", "b": f"v{n - 1}"}

    def match() -> str:
        selector = label_selectors.parse_selector(wire)
        assert isinstance(selector, label_selectors.Selector)
        for _ in range(n):
            selector.matches(labels)
        return str(selector)

    return match


@row(20, 2_000)
def many_finalizers_owners_and_conditions(n: int) -> Call:
    own = "pool.kubevirt.io/finalizer"
    owners = tuple(
        OwnerReference(api_version="v1", kind="Pool", name=f"{number}", uid=f"u{number}") for number in range(n)
    )
    finalizers_ = (*(f"example.org/{number}" for number in range(n)), own)
    meta = ObjectMeta(name="a", uid="u", finalizers=finalizers_, owner_references=owners)
    conditions = tuple(Condition(type=f"c{number}", status="True") for number in range(n))
    ours = {each.type: each for each in conditions[:3]}

    def change() -> None:
        for patch in (finalizers.exact_removal_patch, finalizers.removal_patch):
            patch(meta, own)
        finalizers.addition_patch(meta, "example.org/other")
        finalizers.owner_and_finalizer_removal_patch(meta, own, f"u{n - 1}")
        controller_of(meta)
        merge_conditions(conditions, ours, builders.NOW)

    return change


@row(20, 2_000)
def a_release_that_waits_and_a_selector_of_many_labels(n: int) -> Call:
    selector = label_selectors.parse_selector(terms(n, "labels"))
    assert isinstance(selector, label_selectors.Selector)
    owner, held = pools.pool(), Releases((), (pools.vm(),), builders.NOW, 1)
    return lambda: plan_row(VMS, owner.metadata, held, selector, builders.NOW)


def note(n: int) -> str:
    """The value of an annotation of the controller with many entries, as a user may write it."""
    return json.dumps({number: ["uid", 1, builders.NOW.isoformat()] for number in range(n)})
