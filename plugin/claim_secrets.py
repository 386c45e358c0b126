"""The Secret of a claim: files that the guest of a claimed VM gets after its boot (P33).

A VM starts without the Secret of an *optional* volume. If the pool adds ordinals to the names of Secrets (P5), each VM
has a name of its own there. The claim makes the Secret with this name. The Secret belongs to the VM, so it is deleted
with it, and before another VM gets the VM's name.

The content of a Secret is in no message.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.resources import VMS
from controller.pool.members.machine import Machine
from controller.pool.members.situation import Situation
from controller.pool.spec.naming import ordinal_of
from informers.errors import AlreadyExists, ApiError, Forbidden
from informers.meta import ObjectMeta, OwnerReference, is_controlled_by
from informers.resource import Resource
from plugin.connection import Failed, Session, describe
from plugin.views.edits import Document, field, items


class Secret(Struct, frozen=True):
    """`data` has the content of each file in base64, by key."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] | None = None


SECRETS: Final = Resource(Secret, group="", version="v1", plural="secrets", kind="Secret")


def read_files(files: Sequence[str]) -> Mapping[str, str]:
    """Return the data of a Secret. Each file is `FILE` or `KEY=FILE`, as for kubectl. Raise Failed if one cannot
    be read.
    """
    data = {}
    for each in files:
        key, equals, path = each.partition("=")
        path = path if equals else each
        try:
            data[key if equals else Path(path).name] = b64encode(Path(path).read_bytes()).decode()
        except OSError as error:
            raise Failed(f"error: {path} cannot be read: {error.strerror}") from error
    return data


async def check_secret(session: Session, situation: Situation, data: Mapping[str, str]) -> None:
    """Raise Failed if the VMs of the pool have no optional Secrets of their own, or ApiError if the user may not create
    this Secret. So a claim that cannot have its Secret takes no VM.
    """
    template, pool = situation.revisions.template, situation.pool
    if not (template.index_secrets and _optional_secrets(msgspec.json.decode(template.spec))):
        needs = "a secret volume with optional: true, and nameGeneration.appendIndexToSecretRefs: true"
        raise Failed(f"error: vmpool/{pool.name} has no place for a Secret: it needs {needs}")
    body = _body({"generateName": f"{pool.name}-"}, controller_reference(VMS, pool), data)
    await session.create(SECRETS, pool.namespace, body, dry_run=True)


async def give_secret(session: Session, pool: str, machine: Machine, data: Mapping[str, str]) -> str:
    """Make the Secret of a claimed VM and return its name. If the VM has it with the same data, nothing is written.

    Raise Failed with what the user can do. The VM stays claimed: a job may use it since an earlier claim.
    """
    meta = machine.metadata
    try:
        vm = msgspec.json.decode(await session.request("GET", VMS.path(*meta.key)))
        found = _optional_secrets(field(vm, ("spec",)))
        names = [each for each in found if each.endswith(f"-{ordinal_of(meta.name, pool)}")]
        for name in names:
            if await _has_secret(session, meta, name, data):
                return name
        why = f"other Secrets have the names {', '.join(names)}" if names else "its spec has no optional Secret"
    except Failed as error:
        why = error.message
    except ApiError as error:
        why = f"{describe(error)}{'' if isinstance(error, Forbidden) else '; repeat the command'}"
    back = f"kubectl vmherd release vm/{meta.name} --keep"
    raise Failed(f"error: vm/{meta.name} stays claimed, but has no new Secret: {why}; to give the VM back: {back}")


async def _has_secret(session: Session, vm: ObjectMeta, name: str, data: Mapping[str, str]) -> bool:
    """Make the Secret. Return False if another Secret has its name. Raise Failed, ApiError."""
    try:
        await session.create(SECRETS, vm.namespace, _body({"name": name}, controller_reference(VMS, vm), data))
    except AlreadyExists:
        held = SECRETS.decode(await session.request("GET", SECRETS.path(vm.namespace, name)))
        if not is_controlled_by(held.metadata, vm.uid):
            return False
        if (held.data or {}) != data:
            raise Failed(f"its secret/{name} has other data; delete this, and repeat the command") from None
    return True


def _body(name: Mapping[str, str], owner: OwnerReference, data: Mapping[str, str]) -> bytes:
    meta = {**name, "ownerReferences": [owner]}
    return msgspec.json.encode({"apiVersion": "v1", "kind": SECRETS.kind, "metadata": meta, "data": data})


def _optional_secrets(spec: Document) -> list[str]:
    """Return the names of the optional Secrets in the volumes of a VM spec."""
    sources = [field(each, ("secret",)) for each in items(spec, ("template", "spec", "volumes"))]
    names = [field(each, ("secretName",)) for each in sources if field(each, ("optional",)) is True]
    return [each for each in names if isinstance(each, str) and each]
