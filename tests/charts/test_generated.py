"""What is made from other files is up to date, and is made from nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from charts import rules, schema
from charts.generated import CHART, ROOT, base_files, chart_files
from charts.helm import find_helm
from charts.values import Uncommented, Value, read_values
from controller.config import Config
from controller.modes import Mode
from controller.permissions import permissions_needed
from tests.cluster import Kubectl
from tests.helm import Helm, of_kind


@pytest.mark.parametrize("path", chart_files(), ids=lambda path: path.name)
def test_a_file_of_the_chart_is_what_its_source_says(path: Path) -> None:
    assert path.read_text() == chart_files()[path], "run `python -m charts`"


def test_the_kustomize_base_is_what_the_chart_renders(major: int) -> None:
    made = base_files(find_helm(major), chart_files())
    assert {path: path.read_text() for path in made} == made, "run `python -m charts`"


def test_the_definitions_that_the_chart_ships_are_those_of_manifests_and_no_others() -> None:
    shipped = {path.name: path.read_bytes() for path in (CHART / "files" / "crds").iterdir()}
    assert shipped == {path.name: path.read_bytes() for path in (ROOT / "manifests" / "crds").iterdir()}


def test_a_role_of_the_chart_holds_what_the_startup_check_asks_for_and_nothing_else(helm: Helm) -> None:
    config = Config(mode=Mode.STANDALONE.value, leader_election_namespace="vmherd")
    held = {
        (group, resource, name, verb)
        for role in (*of_kind(helm.render(), "ClusterRole"), *of_kind(helm.render(), "Role"))
        if role["metadata"]["name"] in ("vmherd", "vmherd-lease")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }
    asked = {
        (p.group, f"{p.resource}/{p.subresource}" if p.subresource else p.resource, p.name, p.verb)
        for p in permissions_needed(config)
    }
    assert held == asked


def test_no_rule_has_a_wildcard_or_a_secret() -> None:
    text = rules.template()
    assert "*" not in text.split("\n", 1)[1]
    assert "secrets" not in text


def test_a_value_without_a_comment_is_found() -> None:
    with pytest.raises(Uncommented, match=r"a\.b has no comment"):
        read_values("a:\n  b: 1\n")


def test_a_section_needs_no_comment_and_a_commented_mapping_is_one_value() -> None:
    assert read_values("a:\n  # Text\n  # of two lines.\n  b: 1\n# Whole.\nc:\n  d: 2\n") == (
        Value(("a", "b"), 1, "Text of two lines."),
        Value(("c",), {"d": 2}, "Whole."),
    )


def test_a_refinement_of_what_is_no_value_is_found() -> None:
    with pytest.raises(schema.Unknown, match=r"crds\.annotations"):
        schema.document(read_values("# Text.\na: 1\n"))


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

    found = sections(json.loads((CHART / "values.schema.json").read_text()))
    assert len(found) > 10
    assert all(section["additionalProperties"] is False for section in found)


@pytest.mark.cluster
def test_kustomize_takes_the_base(kubectl: Kubectl) -> None:
    with_definitions = list(yaml.safe_load_all(kubectl("kustomize", str(ROOT / "manifests")).stdout))
    without = list(yaml.safe_load_all(kubectl("kustomize", str(ROOT / "manifests" / "controller")).stdout))
    assert [each for each in with_definitions if each["kind"] != "CustomResourceDefinition"] == without
    assert len(with_definitions) - len(without) == 2
