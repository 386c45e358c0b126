"""Tests of the generated files: they are up to date and agree with their sources."""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from controller.preflight.permissions import optional_permissions, permissions_needed
from tests.cluster import Kubectl
from tests.command_line import parse
from tests.helm import Helm, container, of_kind, only, run_flags
from tools.chart import generated, rules
from tools.chart.generated import CHART, ROOT, base_files, chart_files, objects
from tools.chart.helm import MAJORS, find_helm
from tools.chart.schema import Value, read_values
from tools.release.project import read_project


@pytest.mark.parametrize("path", chart_files(), ids=lambda path: path.name)
def test_a_generated_file_of_the_chart_equals_its_source(path: Path) -> None:
    assert path.read_text() == chart_files()[path], "run `python -m tools.chart`"


@pytest.mark.parametrize("major", MAJORS, indirect=True)
def test_the_kustomize_base_equals_the_rendered_chart(major: int) -> None:
    made = base_files(find_helm(major), chart_files())
    assert {path: path.read_text() for path in made} == made, "run `python -m tools.chart`"


def test_the_chart_ships_exactly_the_definitions_in_manifests() -> None:
    shipped = {path.name: path.read_bytes() for path in (CHART / "files" / "crds").iterdir()}
    assert shipped == {path.name: path.read_bytes() for path in (ROOT / "manifests" / "crds").iterdir()}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"mode": "takeover"},
        {"mode": "takeover", "secondWriterCheck": {"enabled": True, "kubevirtNamespace": "kubevirt"}},
        {"mode": "alongside"},
        {"secondWriterCheck": {"enabled": True, "kubevirtNamespace": "kubevirt"}, "watchNamespaces": ["team-a"]},
        {"mode": "takeover", "secondWriterCheck": {"enabled": False}},
        {"mode": "alongside", "watchNamespaces": ["team-a"]},
        {"observe": True},
        {"settings": {"disruptionBudgets": False}},
        {"settings": {"migrations": True}},
        {"observe": True, "settings": {"migrations": True}},
        {"watchNamespaces": ["team-a", "team-b"]},
        {"leaderElection": {"enabled": False}, "replicaCount": 1},
        {"metrics": {"secure": {"enabled": True}}},
    ],
    ids=str,
)
def test_the_roles_of_the_chart_have_exactly_the_permissions_of_the_startup_check(
    helm: Helm, values: Mapping[str, Any]
) -> None:
    objects = helm.render(values)
    config = parse(run_flags(container(objects)["args"]), {})
    asked = permissions_needed(config) + optional_permissions(config)
    assert set(granted(objects)) == {
        (p.namespace, p.group, f"{p.resource}/{p.subresource}" if p.subresource else p.resource, p.name, p.verb)
        for p in asked
    }


def granted(objects: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, str, str]]:
    """The permissions of the controller's account: namespace, group, resource, name and verb."""
    account = only(objects, "ServiceAccount")["metadata"]["name"]
    for binding in (*of_kind(objects, "ClusterRoleBinding"), *of_kind(objects, "RoleBinding")):
        if ("ServiceAccount", account) not in [(each["kind"], each["name"]) for each in binding["subjects"]]:
            continue
        namespace, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        for role in of_kind(objects, reference["kind"]):
            if (role["metadata"]["name"], role["metadata"].get("namespace", "")) != (reference["name"], namespace):
                continue
            for rule in role["rules"]:
                names = rule.get("resourceNames", [""])
                yield from product([namespace], rule["apiGroups"], rule["resources"], names, rule["verbs"])


def test_no_rule_has_a_wildcard_or_a_secret() -> None:
    text = rules.template()
    assert "*" not in text.split("\n", 1)[1]
    assert "secrets" not in text


def test_a_section_needs_no_comment_and_a_commented_mapping_is_one_value() -> None:
    assert read_values("a:\n  # Text\n  # of two lines.\n  b: 1\n# Whole.\nc:\n  d: 2\n") == (
        Value(("a", "b"), 1, "Text of two lines."),
        Value(("c",), {"d": 2}, "Whole."),
    )


def test_every_value_is_in_the_readme_with_its_comment() -> None:
    lines = (CHART / "README.md").read_text().splitlines()
    for value in read_values((CHART / "values.yaml").read_text()):
        assert any(line.startswith(f"| `{value.name}` |") and value.text in line for line in lines)


def test_the_schema_refuses_unknown_names_in_every_section() -> None:
    def sections(node: dict[str, object]) -> list[dict[str, object]]:
        inside = node.get("properties")
        if not isinstance(inside, dict):
            return []
        return [node, *(section for child in inside.values() for section in sections(child))]

    document = json.loads((CHART / "values.schema.json").read_text())
    # A parent chart can set global values for other charts.
    assert document["properties"].pop("global")["additionalProperties"] is True
    found = sections(document)
    assert len(found) > 10
    assert all(section["additionalProperties"] is False for section in found)


def test_the_version_and_the_address_of_the_chart_come_from_pyproject() -> None:
    known = replace(read_project(ROOT), version="1.2.3", home="https://example.com/x")
    changed = yaml.safe_load(generated.with_facts((CHART / "Chart.yaml").read_text(), known))
    assert (changed["version"], changed["appVersion"], changed["home"]) == ("1.2.3", "1.2.3", known.home)
    assert (changed["sources"], [each["url"] for each in changed["maintainers"]]) == ([known.home], [known.home])
    assert "\nARG VERSION=1.2.3\n" in generated.dockerfile((ROOT / "Dockerfile").read_text(), known)


def test_the_packaged_chart_shows_its_readme_and_its_metadata(helm: Helm, tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    [package] = tmp_path.glob("vmherd-*.tgz")
    assert helm("show", "readme", str(package)).stdout.strip() == (CHART / "README.md").read_text().strip()
    shown = yaml.safe_load(helm("show", "chart", str(package)).stdout)
    picture = base64.b64decode(shown["icon"].removeprefix(generated.ICON_PREFIX))
    assert picture == (ROOT / "charts" / "icon.svg").read_bytes()
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert shown["sources"]
    assert shown["maintainers"][0]["name"]


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["standalone", "takeover", "alongside"])
def test_kustomize_builds_the_objects_that_the_chart_renders(kubectl: Kubectl, mode: str) -> None:
    def by_key(objects: Iterator[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(each["kind"], each["metadata"]["name"]): each for each in objects}

    folder = ROOT / "manifests" / mode.replace("standalone", "")
    built = by_key(yaml.safe_load_all(kubectl("kustomize", str(folder)).stdout))
    chart = by_key(iter(objects(find_helm(MAJORS[-1]), CHART, mode)))
    # The definitions in manifests/crds have no labels of the chart.
    shared = {key for key in chart if mode == "alongside" or key[0] != "CustomResourceDefinition"}
    assert {key: built[key] for key in shared} == {key: chart[key] for key in shared}
    unused = {(kind, "vmherd-live") for kind in ("ClusterRole", "ClusterRoleBinding") if mode == "takeover"}
    assert built.keys() ^ chart.keys() == {("Namespace", "vmherd-system"), *unused}
