"""The template from which a replica set creates its VMIs (R5, R13).

The VMIs of a set differ only in the end of the name (R4). The request body is therefore encoded only once, without the
end of the name. Each create inserts its own end of the name.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.names import SAFE_ALPHABET, name_base
from controller.kubevirt import limits
from controller.kubevirt.annotations import ADOPTED_TEMPLATE, TEMPLATE_HASH
from controller.kubevirt.legacy import modernise
from controller.kubevirt.limits import decode_spec, read_template
from controller.kubevirt.normal_form import HASHED_SPEC, VMI_TEMPLATE, Fields, encoded, normal_form
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetSpec
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vm_types import ControllerRevision
from controller.kubevirt.vmi_types import TemplateMeta, VirtualMachineInstance, VMITemplate
from controller.replicas.revisions import HASH_LENGTH
from informers.memo import Memo
from informers.meta import NO_LABELS, OwnerReference, annotations_of, labels_of

FIELD: Final = "spec.template"

_decode_spec = msgspec.json.Decoder(ReplicaSetSpec).decode


class Template(limits.Template, frozen=True, kw_only=True):
    """A valid template in modern spelling (R13). `base` is the start of each VMI name.

    `hash` identifies it, by the meaning of all that a new VMI gets from it: after `--cascade=orphan`, VMIs count as up
    to date. `adopted` is the hash for VMIs without one: that of `ADOPTED_TEMPLATE`, or else of this template.
    """

    base: str = ""
    hash: str
    adopted: str = ""
    finalizers: tuple[str, ...] = ()

    def hash_of(self, vmi: VirtualMachineInstance) -> str:
        return labels_of(vmi.metadata).get(TEMPLATE_HASH, self.adopted)


def is_updated(vmi: VirtualMachineInstance, template: Template) -> bool:
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
    wire = owner.spec.template
    found = read_template(wire, FIELD, _remembered)
    if isinstance(found, FieldError) or wire is None:
        return found
    meta = wire.metadata or TemplateMeta()
    base = name_base(meta.name, meta.generate_name, owner.metadata.name)
    adopted = annotations_of(owner.metadata).get(ADOPTED_TEMPLATE, found.hash)
    return replace(found, base=base, adopted=adopted, finalizers=meta.finalizers or ())


def template_in(owner: ReplicaSet, revision: ControllerRevision) -> Template | None:
    """Return the template that the revision stores, or None if the template cannot be read or is invalid."""
    try:
        spec = _decode_spec(revision.data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    template = parse_template(replace(owner, spec=spec))
    return None if isinstance(template, FieldError) else template


def encode_template(
    template: Template, namespace: str, owner: OwnerReference, *, annotations: Mapping[str, str] = NO_LABELS
) -> EncodedTemplate:
    """Encode a VMI of the set's namespace (R5), without the suffix of its name, with further `annotations`."""
    type_meta = msgspec.json.encode({"apiVersion": VMIS.api_version, "kind": VMIS.kind})
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


def _read(wire: VMITemplate) -> Template | FieldError:
    decoded = decode_spec(wire, FIELD, VMI_TEMPLATE, "VirtualMachineInstance")
    if isinstance(decoded, FieldError):
        return decoded
    fields, error = decoded
    raw = bytes(wire.spec)
    spec = modernise(raw)
    if spec == raw:
        return Template(hash=_hash_of(wire.metadata or TemplateMeta(), fields), error=error)
    return Template(hash=_hash_of(wire.metadata or TemplateMeta(), msgspec.json.decode(spec)), spec=spec, error=error)


_remembered: Final = Memo(_read)


def _hash_of(meta: TemplateMeta, spec: Fields) -> str:
    """Return the hash as characters of `SAFE_ALPHABET`. Different spellings of the same content have the same hash."""
    content = (meta.labels or {}, meta.annotations or {}, normal_form(spec, HASHED_SPEC))
    # Earlier hashes did not include finalizers. Without finalizers, the hash is the same as before.
    canonical = encoded((*content, meta.finalizers) if meta.finalizers else content)
    digest = int.from_bytes(blake2b(canonical, digest_size=16).digest(), "big")
    letters = []
    for _ in range(HASH_LENGTH):
        digest, letter = divmod(digest, len(SAFE_ALPHABET))
        letters.append(SAFE_ALPHABET[letter])
    return "".join(letters)
