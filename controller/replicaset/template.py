"""The template from which a replica set creates its VMIs (R5, R13).

The VMIs of a set differ only in the end of the name (R4). The request body is therefore encoded only once, without the
end of the name. Each create inserts its own end of the name.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.names import SAFE_ALPHABET, name_base
from controller.kubevirt.annotations import ADOPTED_TEMPLATE, TEMPLATE_HASH
from controller.kubevirt.legacy import modernise
from controller.kubevirt.normal_form import HASHED_SPEC, TEMPLATE_LIMIT, VMI_SPEC, encoded, normal_form, too_large
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetSpec
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import TemplateMeta, VirtualMachineInstance
from controller.kubevirt.wrong_quantities import wrong_quantity
from informers.meta import NO_LABELS, OwnerReference, annotations_of, labels_of
from informers.resource import Resource, T

HASH_LENGTH = 10
"""The number of characters in a template hash."""

LONGEST_CACHED = 16 * 1024
"""The maximum length, in bytes, of a spec whose hash and modern form are remembered."""

_decode_spec = msgspec.json.Decoder(ReplicaSetSpec).decode

Items: TypeAlias = tuple[tuple[str, str], ...]


class Template(Struct, frozen=True, kw_only=True):
    """A parsed and valid template. Old spellings of fields are converted (R13). `base` is the start of each VMI name.

    `adopted` is the hash of the template of VMIs without the template-hash label: the value of the annotation
    `ADOPTED_TEMPLATE`, or else the hash of this template.

    The hash identifies the template. The hash depends only on the labels, the annotations, the finalizers and the spec
    of a new VMI. The order of fields and the spelling of values (see `normal_form`) do not change the hash. So if a set
    is deleted with `--cascade=orphan` and created again, its VMIs count as up to date.
    """

    base: str
    hash: str
    adopted: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    spec: bytes
    wrong_quantity: FieldError | None = None

    def hash_of(self, vmi: VirtualMachineInstance) -> str:
        """Return the hash of the template to which the VMI belongs."""
        return labels_of(vmi.metadata).get(TEMPLATE_HASH, self.adopted)


def is_updated(vmi: VirtualMachineInstance, template: Template) -> bool:
    """Return True if the VMI belongs to the template."""
    return template.hash_of(vmi) == template.hash


def has_hash(vmi: VirtualMachineInstance) -> bool:
    return TEMPLATE_HASH in labels_of(vmi.metadata)


class EncodedTemplate(Struct, frozen=True):
    """An encoded VMI without the end of its name. The body of a create request is `head + suffix + tail`."""

    base: str
    head: bytes
    tail: bytes

    def body(self, suffix: str) -> bytes:
        return self.head + suffix.encode("ascii") + self.tail


def parse_template(owner: ReplicaSet) -> Template | FieldError:
    """Parse the template of the set, or return the error if the template is invalid (R1)."""
    wire = owner.spec.template
    if wire is None:
        return FieldError("spec.template is missing")
    meta = wire.metadata or TemplateMeta()
    labels, annotations, finalizers = meta.labels or {}, meta.annotations or {}, meta.finalizers or ()
    if not labels:
        return FieldError("spec.template.metadata.labels is empty: the labels must match spec.selector")
    raw = bytes(wire.spec)
    if len(raw) > TEMPLATE_LIMIT:
        return FieldError(too_large("spec.template.spec", len(raw)))
    read = _read_remembered if len(raw) <= LONGEST_CACHED else _read
    content = read(tuple(labels.items()), tuple(annotations.items()), finalizers, raw)
    if isinstance(content, FieldError):
        return content
    digest, spec, wrong = content
    base = name_base(meta.name, meta.generate_name, owner.metadata.name)
    adopted = annotations_of(owner.metadata).get(ADOPTED_TEMPLATE, digest)
    return Template(
        base=base,
        hash=digest,
        adopted=adopted,
        labels=labels,
        annotations=annotations,
        finalizers=finalizers,
        spec=spec,
        wrong_quantity=wrong,
    )


def template_in(owner: ReplicaSet, revision: ControllerRevision) -> Template | None:
    """Return the template that the revision stores, or None if the template cannot be read or is invalid."""
    try:
        spec = _decode_spec(revision.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    template = parse_template(replace(owner, spec=spec))
    return None if isinstance(template, FieldError) else template


def encode_template(
    template: Template,
    resource: Resource[T],
    namespace: str,
    owner: OwnerReference,
    *,
    annotations: Mapping[str, str] = NO_LABELS,
) -> EncodedTemplate:
    """Encode a VMI of the set, without the suffix of the VMI's name. `EncodedTemplate.body` adds the suffix.
    `annotations` are added to the annotations of the template.

    The VMIs are created in the namespace of the set. A namespace in the template is ignored (R5).
    """
    type_meta = msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind})
    metadata = msgspec.json.encode(
        {
            "generateName": template.base,
            "namespace": namespace,
            "labels": {**template.labels, TEMPLATE_HASH: template.hash},
            "annotations": {**template.annotations, **annotations},
            **({"finalizers": template.finalizers} if template.finalizers else {}),
            "ownerReferences": (owner,),
        }
    )
    # `head` ends inside the JSON string of the name, and `tail` starts with the closing quote of this string. The
    # suffix contains only letters and digits, so the suffix needs no escaping.
    head = type_meta[:-1] + b',"metadata":{"name":' + msgspec.json.encode(template.base)[:-1]
    tail = b'",' + metadata[1:] + b',"spec":' + template.spec + b"}"
    return EncodedTemplate(template.base, head, tail)


def _read(
    labels: Items, annotations: Items, finalizers: tuple[str, ...], raw: bytes
) -> tuple[str, bytes, FieldError | None] | FieldError:
    """Return the hash of the template, the VMI spec in its modern form, and the error of a wrong quantity or None."""
    spec = modernise(raw)
    if not spec.startswith(b"{"):
        return FieldError("spec.template.spec is missing: it must be a VirtualMachineInstance spec")
    digest = _hash_of(labels, annotations, finalizers, spec)
    if isinstance(digest, FieldError):
        return digest
    return digest, spec, wrong_quantity(msgspec.json.decode(spec), VMI_SPEC, "spec.template.spec")


_read_remembered = lru_cache(maxsize=256)(_read)


def _hash_of(labels: Items, annotations: Items, finalizers: tuple[str, ...], spec: bytes) -> str | FieldError:
    """Return the hash as characters of `SAFE_ALPHABET`, or an error if the spec cannot be read.

    Different spellings of the same content have the same hash.
    """
    try:
        content = (dict(labels), dict(annotations), normal_form(msgspec.json.decode(spec), HASHED_SPEC))
        # Earlier hashes did not include finalizers. Without finalizers, the hash is the same as before.
        canonical = encoded((*content, finalizers) if finalizers else content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return FieldError(f"spec.template.spec cannot be read: {error}")
    digest = int.from_bytes(blake2b(canonical, digest_size=16).digest(), "big")
    letters = []
    for _ in range(HASH_LENGTH):
        digest, letter = divmod(digest, len(SAFE_ALPHABET))
        letters.append(SAFE_ALPHABET[letter])
    return "".join(letters)
