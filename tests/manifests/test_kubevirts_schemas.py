"""The CRDs of vmherd compared with the status, columns and subresources of KubeVirt's CRDs."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.kinds import KINDS, Kind
from controller.replicas.kstatus import Health, Stall, Word, progress_conditions
from tests.manifests.documents import POOLS, REPLICASETS, load

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
RECORDING = json.loads((RECORDINGS / "kubevirt-status-schemas.json").read_text())
PAIRS = [(kind, next(path for path in (POOLS, REPLICASETS) if kind.plural in path.name)) for kind in KINDS]


def of_kubevirt(kind: Kind[Any]) -> dict[str, Any]:
    return dict(RECORDING[f"{kind.plural}.{kind.group}"])


def version_of(path: Path) -> dict[str, Any]:
    return dict(load(path)["spec"]["versions"][0])


def status_of(path: Path) -> dict[str, Any]:
    return dict(version_of(path)["schema"]["openAPIV3Schema"]["properties"]["status"])


each_kind = pytest.mark.parametrize(("kind", "path"), PAIRS, ids=lambda each: each.name)


@each_kind
def test_the_columns_without_the_flag_wide_are_kubevirts(kind: Kind[Any], path: Path) -> None:
    columns = version_of(path)["additionalPrinterColumns"]
    usual = [[each["name"], each["type"], each["jsonPath"]] for each in columns if not each.get("priority")]
    assert usual == of_kubevirt(kind)["columns"]


@each_kind
def test_the_scale_subresource_is_kubevirts(kind: Kind[Any], path: Path) -> None:
    scale = version_of(path)["subresources"]["scale"]
    names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    assert [scale[name] for name in names] == of_kubevirt(kind)["scale"]


@each_kind
def test_the_status_has_every_field_of_kubevirt_with_the_same_type(kind: Kind[Any], path: Path) -> None:
    types = {name: schema["type"] for name, schema in status_of(path)["properties"].items()}
    assert types.items() >= of_kubevirt(kind)["status"].items()
    assert kind.known_status == frozenset(of_kubevirt(kind)["status"])


@each_kind
def test_a_condition_has_the_fields_of_kubevirt_and_any_type(kind: Kind[Any], path: Path) -> None:
    schema, expected = status_of(path)["properties"]["conditions"]["items"], of_kubevirt(kind)["condition"]
    assert {name: each["type"] for name, each in schema["properties"].items()} == expected["properties"]
    assert sorted(schema["required"]) == expected["required"]
    assert not expected["restrictedTypes"], "KubeVirt's schema rejects other types of conditions"
    assert "enum" not in schema["properties"]["type"]


@each_kind
@pytest.mark.parametrize("health", [Health(Word.SCALING), Health(Word.DEGRADED, "x", Stall("InvalidSpec", "x"))])
def test_the_conditions_of_kstatus_have_only_fields_of_kubevirt(kind: Kind[Any], path: Path, health: Health) -> None:
    found = [each for each in progress_conditions(health).values() if each is not None]
    [condition] = [each for each in found if each.type != "Progressing"]
    used = {field for field in ("type", "status", "reason", "message") if getattr(condition, field)}
    assert used == {"type", "status", "reason", "message"}
    assert used <= of_kubevirt(kind)["condition"]["properties"].keys()
