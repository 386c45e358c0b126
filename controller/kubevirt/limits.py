"""The limits of the spec of a set or pool. Both kinds apply them when they parse a spec or a revision (P30).

A template over a limit of cost is not read any further, so a stored revision with it cannot be read either. A wrong
value, such as a quantity that Kubernetes cannot read, stops the spec but no revision: its VMs exist already. KubeVirt's
CRDs accept both, and the API server would refuse each VM instead.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError, quoted
from controller.apimachinery.label_selectors import LabelSelector, Selector, is_label_key, parse_selector
from controller.apimachinery.quantities import parse_quantity
from controller.kubevirt.annotations import MEMBER_MARKS
from controller.kubevirt.merge_keys import NAMED_LISTS
from controller.kubevirt.normal_form import Fields, GoType, Json
from controller.kubevirt.pool_types import PoolSpec
from controller.kubevirt.replicaset_types import ReplicaSetSpec
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from informers.memo import Memo

TEMPLATE_LIMIT: Final = 128 * 1024
"""The largest spec of a template in bytes. Real ones are much smaller: KubeVirt limits inline user data to 2 KiB."""

MOST_LEVELS, MOST_VALUES, MOST_QUANTITIES = 64, 10_000, 1_000
"""The limits of a template. Real ones have about 15 levels, and 256 disks need 7,000 values and 512 quantities."""

MOST_NAMED: Final = 256
"""The largest number of elements of a list in `NAMED_LISTS`. KubeVirt's webhook has the same limit (`arrayLenMax`)."""

MOST_ANNOTATIONS: Final = 256 * 1024
"""The largest size of all annotations of an object in bytes, as in Kubernetes (`TotalAnnotationSizeLimitB`)."""

_INT64: Final = range(-(2**63), 2**63)
_QUANTITIES: Final = ("quantity", "quantity-or-zero")
_BYTES: Final = re.compile(r"([0-9.]{1,40}) *([kmgtpe])i?b?(?:ytes?)?", re.ASCII | re.IGNORECASE)
"""How users write a number of bytes, such as `64MB` or `2 gb`."""

_SHOWN: Final = 24
"""The number of levels of a path, and of characters of a name in it, that a message shows."""

_Place: TypeAlias = tuple["_Place", str | int] | None
"""A place in a template: the place above it, and the name of the field or the number of the element."""


class Template(Struct, frozen=True, kw_only=True):
    """A valid template of a set or pool. `spec` is JSON. `error` is a wrong value, which stops no revision, or None."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    spec: bytes = b""
    error: FieldError | None = None


T = TypeVar("T", bound=Template)


def check_spec(
    spec: PoolSpec | ReplicaSetSpec, template: T | FieldError, path: str
) -> tuple[int, Selector, T] | FieldError:
    """Return the replicas (default 1), selector and template at `path` of a spec, or its first error (R1, P1)."""
    replicas = 1 if spec.replicas is None else spec.replicas
    if replicas < 0:
        return FieldError(f"spec.replicas is {replicas}: it must not be negative")
    selector = parse_selector(spec.selector or LabelSelector())
    if isinstance(selector, FieldError):
        return selector
    if selector.is_empty:
        return FieldError("spec.selector is empty: it would match every virtual machine of the namespace")
    if isinstance(template, FieldError):
        return template
    if template.error is not None:
        return template.error
    if not selector.matches(template.labels):
        return FieldError(f"spec.selector {quoted(str(selector))} does not match {path}.metadata.labels")
    return replicas, selector, template


def read_template(wire: VMITemplate | None, path: str, parse: Memo[T | FieldError], *flags: bool) -> T | FieldError:
    """Return the parsed template, or the error of one that is missing, has no labels or is too large.

    `parse` returns the template without its texts. A spec in its result is the modern form of the spec.
    """
    if wire is None:
        return FieldError(f"{path} is missing")
    meta, spec = wire.metadata or TemplateMeta(), bytes(wire.spec)
    if not meta.labels:
        return FieldError(f"{path}.metadata.labels is empty: the labels must match spec.selector")
    if len(spec) > TEMPLATE_LIMIT:
        advice = "put large data into Secrets or ConfigMaps"
        return FieldError(f"{path}.spec has {len(spec)} bytes: at most {TEMPLATE_LIMIT} are allowed; {advice}")
    found = parse(wire, *flags)
    if isinstance(found, FieldError):
        return found
    annotations = {name: text for name, text in (meta.annotations or {}).items() if name not in MEMBER_MARKS}
    return replace(found, labels=meta.labels, annotations=annotations, spec=found.spec or spec)


def decode_spec(
    wire: VMITemplate, path: str, type_: GoType, kind: str
) -> tuple[Fields, FieldError | None] | FieldError:
    """Return the spec of a template for this `kind` and its first wrong value, or the error of a limit of cost."""
    try:
        fields = msgspec.json.decode(wire.spec)
    except RecursionError:
        return FieldError(f"{path}.spec has more than {MOST_LEVELS} levels")
    except (msgspec.DecodeError, UnicodeDecodeError):
        fields = None
    if not isinstance(fields, dict):
        return FieldError(f"{path}.spec is missing: it must be a {kind} spec")
    meta = wire.metadata or TemplateMeta()
    metadata = {"labels": meta.labels or {}, "annotations": meta.annotations or {}}
    over, wrong = _errors({"metadata": metadata, "spec": fields}, type_, path)
    return over or (fields, wrong)


def _errors(template: Json, type_: GoType, path: str) -> tuple[FieldError | None, FieldError | None]:
    """Return the first exceeded limit of cost and the first wrong value, or None, without recursion."""
    wrong: FieldError | None = None
    values = quantities = 0
    todo: list[tuple[Json, GoType, _Place, int]] = [(template, type_, None, 0)]
    while todo:
        value, type_, place, level = todo.pop()
        values += 1
        quantities += type_.kind in _QUANTITIES
        if values > MOST_VALUES or quantities > MOST_QUANTITIES or level > MOST_LEVELS:
            most = f"{MOST_VALUES} values"
            if level > MOST_LEVELS:
                most = f"{MOST_LEVELS} levels"
            elif quantities > MOST_QUANTITIES:
                most = f"{MOST_QUANTITIES} quantities"
            return FieldError(f"{_text(path, place)} is too much: a template may have {most}"), None
        if isinstance(value, list) and len(value) > MOST_NAMED and place is not None and place[1] in NAMED_LISTS:
            text = f"{_text(path, place)} has {len(value)} elements: at most {MOST_NAMED} are allowed"
            return FieldError(text), None
        wrong = wrong or _wrong_value(value, type_, path, place)
        if isinstance(value, dict):
            todo += [(each, type_.field(name), (place, name), level + 1) for name, each in reversed(value.items())]
        elif isinstance(value, list):
            todo += [(each, type_.element, (place, at), level + 1) for at, each in reversed([*enumerate(value)])]
    return None, wrong


def _wrong_value(value: Json, type_: GoType, path: str, place: _Place) -> FieldError | None:
    match value, place:
        case str(), _ if type_.kind in _QUANTITIES and parse_quantity(value) is None:
            found = _BYTES.fullmatch(value.strip())
            right = f"{found[1]}{found[2].upper()}i" if found is not None else "500m or 2Gi"
            return FieldError(f"{_text(path, place)} is {quoted(value)}: it must be a quantity such as {right}")
        case int(), _ if value not in _INT64:
            return FieldError(f"{_text(path, place)} is {quoted(str(value))}: it must be an integer of 64 bits")
        case dict(), ((_, "metadata"), "labels" | "annotations" as name):
            # The API server checks them only in the objects that are made from the template.
            for key in value:
                if not is_label_key(key if name == "labels" else key.lower()):
                    text = "is no valid key, such as app or example.com/app"
                    return FieldError(f"{_text(path, place)}: {quoted(key)} {text}")
            size = sum(len(str(text).encode()) for item in value.items() for text in item)
            if name == "annotations" and size > MOST_ANNOTATIONS:
                return FieldError(f"{_text(path, place)} has {size} bytes: at most {MOST_ANNOTATIONS} are allowed")
    return None


def _text(path: str, place: _Place) -> str:
    """Return the path of a place below `path`, without the rest of a long path."""
    steps: list[str] = []
    while place is not None:
        place, name = place
        steps.append(f"[{name}]" if isinstance(name, int) else f".{name[:_SHOWN]}{'...' * (len(name) > _SHOWN)}")
    return path + "".join(steps[: -_SHOWN - 1 : -1]) + "..." * (len(steps) > _SHOWN)
