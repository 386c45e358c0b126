"""Validation of sets and pools by the API server, before the controller sees them (R1, P1).

An error names the field and the valid values. The rules of only one kind have tests in files of their own.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.cluster import DryRun, Kubectl
from tests.manifests.documents import ABSENT, POOL, SETS, Subject, wrong

pytestmark = pytest.mark.cluster

EXPRESSIONS = "spec.selector.matchExpressions"


def expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def refused(subject: Subject) -> dict[str, tuple[Mapping[str, Any], str]]:
    template, spec, labels, disks = subject.template, subject.spec, subject.labels, subject.disks
    required, no_match = "Required value", f"Invalid value: selector does not match labels: {labels} must"
    no_volume = f"each disk must have the name of one of {spec}.volumes, which has"
    empty_selector = (
        f"{required}: must not be empty, because an empty selector would match every {subject.member} of the "
        f"namespace; set matchLabels to labels in {labels}"
    )
    no_labels = (
        f"{required}: must not be empty, because spec.selector selects the {subject.member}s of the {subject.word} by "
        "their labels"
    )

    def unmatched(each: Mapping[str, Any], said: str) -> tuple[Mapping[str, Any], str]:
        return {EXPRESSIONS: [each]}, f'{EXPRESSIONS}: {no_match} satisfy ["{said}"]'

    def malformed(each: Mapping[str, Any], said: str) -> tuple[Mapping[str, Any], str]:
        return {EXPRESSIONS: [each]}, f"{EXPRESSIONS}[0].{said}"

    one_value = f"values: {required}: must have at least one value when operator is In or NotIn"
    return {
        "no spec": wrong("spec", ABSENT, required),
        "no template": wrong(template, ABSENT, required),
        "no template spec": wrong(spec, ABSENT, required),
        "no domain": wrong(f"{spec}.domain", ABSENT, required),
        "null domain": wrong(f"{spec}.domain", None, required),
        "no selector": wrong("spec.selector", ABSENT, required),
        "null selector": wrong("spec.selector", None, required),
        "empty selector": wrong("spec.selector", {}, empty_selector),
        "selector of empty parts": wrong("spec.selector", {"matchLabels": {}, "matchExpressions": []}, empty_selector),
        "selector of null parts": wrong(
            "spec.selector", {"matchLabels": None, "matchExpressions": None}, empty_selector
        ),
        "another value": wrong("spec.selector.matchLabels", {"app": "db"}, f'{no_match} have ["app=db"]'),
        "a label too many": wrong(
            "spec.selector.matchLabels", {"app": "web", "zone": "a"}, f'{no_match} have ["zone=a"]'
        ),
        "In": unmatched(expression("In", "db", "mail"), "app In (db, mail)"),
        "In without the label": unmatched(expression("In", "a", key="zone"), "zone In (a)"),
        "NotIn": unmatched(expression("NotIn", "db", "web"), "app NotIn (db, web)"),
        "Exists": unmatched(expression("Exists", key="zone"), "zone Exists"),
        "DoesNotExist": unmatched(expression("DoesNotExist"), "app DoesNotExist"),
        "unknown operator": malformed(
            expression("Gt", "1"), 'operator: Unsupported value: "Gt": supported values: "In", "NotIn", "Exists"'
        ),
        "no operator": malformed({"key": "app"}, f"operator: {required}"),
        "no key": malformed({"operator": "Exists"}, f"key: {required}"),
        "no label key": malformed(expression("Exists", key="not a key"), 'key: Invalid value: "not a key"'),
        "In without values": malformed(expression("In"), one_value),
        "NotIn without values": malformed({**expression("NotIn"), "values": []}, one_value),
        "Exists with values": malformed(
            expression("Exists", "web"), "values: Forbidden: must be empty when operator is Exists or DoesNotExist"
        ),
        "no labels": wrong(labels, ABSENT, no_labels),
        "null labels": wrong(labels, None, no_labels),
        "empty labels": wrong(labels, {}, no_labels),
        "no metadata": ({f"{template}.metadata": ABSENT}, f"{labels}: {no_labels}"),
        "no labels for a selector that asks for none": (
            {"spec.selector": {"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}, labels: {}},
            f"{labels}: {no_labels}",
        ),
        "a label that is no string": (
            {labels: {"app": "web", "port": 80}},
            f'{labels}.port: Invalid value: "integer": {labels}.port in body must be of type string',
        ),
        "a label with a space": ({labels: {"app": "web", "team": "a b"}}, f'{labels}.team: Invalid value: "a b"'),
        "a label key with a space": wrong(
            labels,
            {"app": "web", "my team": "a"},
            'Invalid value: no valid label keys: ["my team"]; a key has at most 63 letters',
        ),
        "an annotation that is no string": (
            {f"{template}.metadata.annotations": {"cost": 5}},
            f"{template}.metadata.annotations.cost in body must be of type string",
        ),
        **{
            f"{value!r} replicas": wrong("spec.replicas", value, f"Invalid value: {message}")
            for value, message in (
                (-1, "-1: spec.replicas in body should be greater than or equal to 0"),
                ("3", '"string": spec.replicas in body must be of type integer'),
                (3_000_000_000, "3000000000: should be less than or equal to 2147483647"),
            )
        },
        "half a replica": ({"spec.replicas": 1.5}, "spec.replicas in body must be of type int"),
        "a disk without volume": (
            {f"{spec}.volumes": [{"name": "data"}, {"name": "logs"}]},
            f'{disks}: Invalid value: no volume is named ["root"]: {no_volume} ["data", "logs"]',
        ),
        "a disk and no volumes": (
            {f"{spec}.volumes": ABSENT},
            f'{disks}: Invalid value: no volume is named ["root"]: {no_volume} []',
        ),
        "a disk without name": wrong(
            disks, [{"disk": {}}], f'Invalid value: no volume is named [""]: {no_volume} ["root"]'
        ),
        "a volume without name": ({f"{spec}.volumes": [{"emptyDisk": {}}]}, f"{spec}.volumes[0].name: {required}"),
        "a misspelt field": ({"spec.replica": 3}, 'unknown field "spec.replica"'),
    }


def accepted(subject: Subject) -> dict[str, Mapping[str, Any]]:
    template, spec, labels, disks = subject.template, subject.spec, subject.labels, subject.disks
    return {
        "nothing unusual": {},
        "no replicas": {"spec.replicas": 0},
        "paused": {"spec.paused": True},
        "paused that is null": {"spec.paused": None},
        "a disk that is null": {disks: [{"name": "root", "disk": None}]},
        "an empty CD drive": {disks: [{"name": "drive", "cdrom": {"bus": "sata"}}]},
        "volumes without disks": {f"{spec}.domain": {}},
        "devices that are null": {f"{spec}.domain": {"devices": None}},
        "disks and volumes that are null": {f"{spec}.domain": {"devices": {"disks": None}}, f"{spec}.volumes": None},
        "neither disks nor volumes": {f"{spec}.domain": {"devices": {}}, f"{spec}.volumes": ABSENT},
        "as many disks as there can be": {
            disks: [{"name": f"disk-{number:0>58}"} for number in range(256)],
            f"{spec}.volumes": [{"name": f"disk-{number:0>58}"} for number in range(256)],
        },
        "template metadata that is null in parts": {
            f"{template}.metadata.creationTimestamp": None,
            f"{template}.metadata.annotations": None,
        },
        "a selector that is null in part": {"spec.selector.matchExpressions": None},
        "every operator": {
            EXPRESSIONS: [
                *(expression("In", "db", "web"), expression("NotIn", "db"), expression("NotIn", "a", key="zone")),
                *(expression("Exists", key="tier"), {"key": "zone", "operator": "DoesNotExist", "values": []}),
            ]
        },
        "a selector of expressions alone": {
            "spec.selector": {"matchExpressions": [{"key": "app", "operator": "Exists", "values": None}]}
        },
        "a label key with a prefix": {
            labels: {"app": "web", "kubevirt.io/domain": "a_b.C-1", "empty": ""},
            "spec.selector.matchLabels": {"kubevirt.io/domain": "a_b.C-1"},
        },
        "a status as old clients print it": {"status": {"conditions": None}},
        "a status that is null": {"status": None},
        "a creation time that is null": {"metadata.creationTimestamp": None},
    }


REFUSED = {
    f"{subject.word}: {name}": (subject, *each) for subject in (SETS, POOL) for name, each in refused(subject).items()
}
ACCEPTED = {
    f"{subject.word}: {name}": (subject, each) for subject in (SETS, POOL) for name, each in accepted(subject).items()
}


@pytest.mark.parametrize(("subject", "changes", "message"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_object_is_refused_with_the_field_and_the_valid_values(
    dry: DryRun, subject: Subject, changes: Mapping[str, Any], message: str
) -> None:
    """R1, P1: the API server refuses most invalid objects. The controller only reports the others."""
    assert dry.refuses(subject(changes), message)


@pytest.mark.parametrize(("subject", "changes"), ACCEPTED.values(), ids=ACCEPTED)
def test_an_unusual_object_is_accepted_without_a_warning(
    dry: DryRun, subject: Subject, changes: Mapping[str, Any]
) -> None:
    """R13: the API server accepts old fields and fields that are null."""
    assert dry.warnings(subject(changes)) == []


each_kind = pytest.mark.parametrize("subject", [SETS, POOL], ids=lambda each: each.word)


@each_kind
def test_a_template_comes_back_as_it_was_sent(kubectl: Kubectl, subject: Subject) -> None:
    """P4, P12: the API server keeps template fields that the schema does not know, with any value."""
    odd = {"number": 9007199254740993, "share": 1.25, "null": None, "list": [None, {"a": None}, "☃", [[], {}]]}
    changes = {
        f"{subject.template}.metadata.creationTimestamp": None,
        f"{subject.template}.metadata.namespace": "elsewhere",
        f"{subject.template}.metadata.later": {"a": [1]},
        f"{subject.spec}.later": odd,
        f"{subject.spec}.domain.later": odd,
        f"{subject.spec}.domain.devices.later": False,
        subject.disks: [{"name": "root", "disk": None, "cdrom": {"later": odd}, "bootOrder": 1}],
        f"{subject.spec}.volumes": [{"name": "root", "later": {"deep": odd}}],
    }
    if subject is POOL:
        vm = f"{subject.template}.spec"
        changes |= {
            f"{vm}.later": odd,
            f"{vm}.dataVolumeTemplates": [{"metadata": {"name": "data", "later": odd}, "later": odd}],
            f"{vm}.template.later": odd,
            f"{vm}.template.metadata.later": odd,
        }
    sent = subject(changes)
    kubectl.create(sent)
    assert kubectl.json("get", subject.short, "web")["spec"] == sent["spec"]


@each_kind
@pytest.mark.parametrize("change", ["to other labels", "to more labels", "by an expression", "with the template"])
def test_the_selector_cannot_be_changed(kubectl: Kubectl, subject: Subject, change: str) -> None:
    changes: Mapping[str, Mapping[str, Any]] = {
        "to other labels": {"spec.selector.matchLabels": {"tier": "front"}},
        "to more labels": {"spec.selector.matchLabels": {"app": "web", "tier": "front"}},
        "by an expression": {EXPRESSIONS: [expression("Exists")]},
        "with the template": {"spec.selector.matchLabels": {"app": "db"}, subject.labels: {"app": "db"}},
    }
    kubectl("apply", "-f", "-", stdin=subject())
    answer = kubectl("apply", "-f", "-", stdin=subject(changes[change]), check=False)
    assert answer.stderr.strip() == (
        f'The {subject.kind} "web" is invalid: spec.selector: Forbidden: cannot be changed, because it selects the '
        f"{subject.member}s of the {subject.word}; create a new {subject.word} instead"
    )


@each_kind
def test_every_field_except_the_selector_can_be_changed(kubectl: Kubectl, subject: Subject) -> None:
    before: dict[str, Any] = {}
    changes: dict[str, Any] = {"spec.replicas": 7, "spec.paused": True, f"{subject.spec}.domain": {}}
    if subject is POOL:
        before["spec.scaleInStrategy"] = {"proactive": {}}
        changes |= {"spec.maxUnavailable": 1, "spec.scaleInStrategy": {"unmanaged": {}}}
    else:
        changes[subject.labels] = {"app": "web"}
    kubectl("apply", "-f", "-", stdin=subject(before))
    changed = subject(changes)
    kubectl("apply", "-f", "-", stdin=changed)
    assert kubectl.json("get", subject.short, "web")["spec"] == changed["spec"]
