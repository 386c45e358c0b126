"""This module builds the error answers of virt-api. The messages are those of Kubernetes' error package."""

from typing import Any, Final

from msgspec import Struct

GROUP: Final = "kubevirt.io"

VIRTUAL_MACHINE: Final = "virtualmachine"
"""The resource in virt-api's error messages. virt-api uses the singular."""

_REASONS: Final = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 500: "InternalError"}


class Failure(Struct, frozen=True):
    """An error answer. `name` is the name of the VM, or "" if the error is not about a single VM."""

    code: int
    message: str
    name: str = ""

    def document(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": _REASONS[self.code],
            "code": self.code,
        }
        if self.name:
            status["details"] = {"name": self.name, "group": GROUP, "kind": VIRTUAL_MACHINE}
        return status


def bad_request(message: str) -> Failure:
    return Failure(400, message)


def conflict(name: str, why: str) -> Failure:
    text = f'Operation cannot be fulfilled on {VIRTUAL_MACHINE}.{GROUP} "{name}": {why}'
    return Failure(409, text, name)


def not_found(name: str) -> Failure:
    return Failure(404, f'{VIRTUAL_MACHINE}.{GROUP} "{name}" not found', name)


def internal_error(why: str) -> Failure:
    return Failure(500, f"Internal error occurred: {why}")
