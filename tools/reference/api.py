"""The page of all fields of both kinds, from the descriptions in the CRDs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tools.reference.markdown import code, introduction, sentence, table

Schema: TypeAlias = Mapping[str, Any]

SOURCE = Path(__file__).with_name("api.md.in")
STANDARD = ("apiVersion", "kind", "metadata")
"""The fields that each object of Kubernetes has. The page leaves them out."""


def page(definitions: Sequence[Path]) -> str:
    parts = [introduction(SOURCE.read_text())]
    for path in definitions:
        parts.append(_kind(yaml.safe_load(path.read_text())["spec"]))
    return "\n".join(parts)


def _kind(spec: Mapping[str, Any]) -> str:
    [newest] = [version for version in spec["versions"] if version["storage"]]
    others = [version["name"] for version in spec["versions"] if version["served"] and version is not newest]
    schema = newest["schema"]["openAPIV3Schema"]
    names = ", ".join(code(name) for name in spec["names"].get("shortNames", ()))
    parts = [f"## {spec['names']['kind']}\n\n{schema['description']}\n"]
    served = f"Group and version: `{spec['group']}/{newest['name']}`. Short names: {names}."
    if others:
        served += f" Also served: {', '.join(code(name) for name in others)}."
    parts.append(f"{served} In the mode `alongside`, the group is `{own_group(spec['group'])}`.\n")
    for name, part in schema["properties"].items():
        if name not in STANDARD:
            rows = list(_rows(part, name))
            parts.append(f"### {spec['names']['shortNames'][0]}: {name}\n\n{sentence(part['description'])}\n")
            parts.append(table(("field", "type", "meaning"), rows))
    return "\n".join(parts)


def own_group(group: str) -> str:
    return group.replace("kubevirt.io", "vmherd.dev")


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    for name, field in (schema.get("properties") or {}).items():
        inner = f"{path}.{name}"
        yield code(inner), _type(field), _meaning(field, required=name in schema.get("required", ()))
        if field.get("type") == "array":
            yield from _rows(field["items"], f"{inner}[]")
        else:
            yield from _rows(field, inner)


def _type(field: Schema) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "number or string"
    if field["type"] == "array":
        return f"list of {field['items'].get('type', 'value')}s"
    values = field.get("additionalProperties")
    return f"map of {values['type']}s" if isinstance(values, dict) and "type" in values else field["type"]


def _meaning(field: Schema, *, required: bool) -> str:
    parts = [sentence(field.get("description", ""))]
    if required:
        parts.append("Required.")
    if "default" in field:
        parts.append(f"Default: {code(json.dumps(field['default']))}.")
    if "enum" in field:
        parts.append(f"One of {', '.join(code(str(value)) for value in field['enum'])}.")
    least, most = field.get("minimum"), field.get("maximum")
    if least is not None:
        parts.append(f"From {least} to {most}." if most is not None else f"At least {least}.")
    for rule in field.get("x-kubernetes-validations", ()):
        parts.append(f"Check: {sentence(rule['message'])}.")
    return " ".join(part for part in parts if part)
