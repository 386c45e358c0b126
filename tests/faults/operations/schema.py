"""Values for the fields of a spec, generated from the CRD's own schema: values of the right type, and violations.

A violation breaks exactly one rule of the schema: a type, a limit, an enum, a pattern, a required field, or null in a
field that is not nullable. So the API server must refuse it.
"""

import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

CRDS = Path(__file__).resolve().parents[3] / "manifests" / "crds"
FILES = {
    "sets": "kubevirt.io_virtualmachineinstancereplicasets.yaml",
    "pools": "pool.kubevirt.io_virtualmachinepools.yaml",
}
OWN_FIELDS = ("replicas", "selector", "template", "virtualMachineTemplate")
"""Fields that `Vary` does not replace: other operations change them, or no client may change them."""

TEXTS = ("", "a", "app", "herd", "5m", "10%", "1", "-1", "not valid!", "x" * 64, "Ünïcode")
LABEL_TEXTS = ("a", "app", "herd", "test.vmherd.dev/team", "B_1.x")
NUMBERS = (0, 1, 2, 5, -1, 2**31 - 1)

Schema = Mapping[str, Any]


class Violation(Struct, frozen=True):
    """A value that the schema forbids, at a path of the spec. The path is a JSON pointer."""

    path: str
    value: Any
    rule: str
    remove: bool = False

    def steps(self, owner: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The JSON patch that sets the value and creates missing parents. The patch tests the UID."""
        steps: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": owner["metadata"]["uid"]}]
        if self.remove:
            return [*steps, {"op": "remove", "path": self.path}]
        here: Any = owner
        at = ""
        parts = self.path.split("/")[1:]
        for part in parts[:-1]:
            at += f"/{part}"
            here = here.get(part) if isinstance(here, dict) else None
            if not isinstance(here, dict):
                steps.append({"op": "add", "path": at, "value": {}})
                here = {}
        return [*steps, {"op": "add", "path": self.path, "value": self.value}]


@cache
def spec_schema(kind: str) -> Schema:
    document = yaml.safe_load((CRDS / FILES[kind]).read_text())
    schema: Schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


@cache
def varied_fields(kind: str) -> tuple[str, ...]:
    return tuple(sorted(set(spec_schema(kind)["properties"]) - set(OWN_FIELDS)))


@cache
def violations(kind: str) -> tuple[Violation, ...]:
    """All violations of a spec, in a fixed order."""
    return tuple(_violations(spec_schema(kind), "/spec", required=True))


def _violations(schema: Schema, path: str, *, required: bool = False) -> Iterator[Violation]:
    """Yield the violations of one field and of the fields below.

    Items of lists are left out: lists are replaced whole.
    """
    for wrong, rule in _wrong_values(schema):
        yield Violation(path, wrong, rule)
    if not schema.get("nullable") and required and path != "/spec":
        yield Violation(path, None, "it is not nullable")
        yield Violation(path, None, "it is required", remove=True)
    for name, below in (schema.get("properties") or {}).items():
        yield from _violations(below, f"{path}/{name}", required=name in schema.get("required", ()))


def _wrong_values(schema: Schema) -> Iterator[tuple[Any, str]]:
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        yield from ((wrong, "it is neither an integer nor a text") for wrong in (True, 1.5, ["1"], {"a": 1}))
        yield from ((wrong, "its validation rule") for wrong in (0, -1, "0%", "101%", "x", ""))
        return
    others = {"object": ("text", 7, ["x"]), "array": ("text", {"a": 1}), "string": (7, ["x"], True)}
    others |= {"integer": ("text", 1.5, {}), "boolean": ("true", 1, [])}
    yield from ((wrong, f"it is no {kind}") for wrong in others.get(str(kind), ()))
    if "minimum" in schema:
        yield schema["minimum"] - 1, "its minimum"
    if schema.get("format") == "int32":
        yield 2**31, "its format"
    if "enum" in schema:
        yield "Sometimes", "its enum"
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1), "its length"
    if "pattern" in schema:
        yield "not valid!", "its pattern"
    if "maxItems" in schema:
        yield [{"name": "x"}] * (schema["maxItems"] + 1), "its number of items"
    if "maxProperties" in schema:
        yield {f"k{n}": "v" for n in range(schema["maxProperties"] + 1)}, "its number of properties"


def random_value(kind: str, field: str, seed: int) -> Any:
    """Return a random value of the field's type. The server accepts most of these values.

    The same seed gives the same value.
    """
    return _value(spec_schema(kind)["properties"][field], random.Random(f"{field}/{seed}"), field)


def _value(schema: Schema, chance: random.Random, name: str) -> Any:
    if schema.get("nullable") and chance.random() < 0.15:
        return None
    if schema.get("x-kubernetes-int-or-string"):
        return chance.choice((1, 2, 100, "1%", "25%", "50%", "100%", 0, "0%", "1", "-5%"))
    match schema.get("type"):
        case "boolean":
            return chance.random() < 0.5
        case "integer":
            return chance.choice(NUMBERS)
        case "string" if "enum" in schema:
            return chance.choice(schema["enum"])
        case "string" if "pattern" in schema:
            return chance.choice(LABEL_TEXTS)
        case "string":
            return chance.choice(("1s", "5s", "5m", "0s", "1m30s", *TEXTS))
        case "array":
            return [_value(schema["items"], chance, name) for _ in range(chance.randrange(3))]
        case "object" if "properties" in schema:
            return _object(schema, chance)
        case "object":
            names = chance.sample(LABEL_TEXTS, chance.randrange(3))
            return {key: _value(schema.get("additionalProperties") or {}, chance, key) for key in names}
        case _:
            return chance.choice(TEXTS)


def _object(schema: Schema, chance: random.Random) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    names = [name for name in schema["properties"] if name in required or chance.random() < 0.5]
    return {name: _value(schema["properties"][name], chance, name) for name in names}
