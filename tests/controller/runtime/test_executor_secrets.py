"""No text that the server sends about a write leaves the executor with a quote of the written object.

A webhook can quote the object in a refusal of any kind, and in a warning about a write that it allows.
"""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.runtime.actions import Action, Create
from informers.errors import StatusError
from informers.http.warnings import collect, collected_warnings
from tests.controller.runtime.executor_setup import (
    ExecutorSetup,
    create,
    delete,
    document,
    patch,
    put_vm,
    three_way_merge,
)
from tests.fakes.requests import Request, refusal

pytestmark = pytest.mark.looptime

SECRET = "S3cret-Passw0rd"
SPEC = {"template": {"volumes": [{"cloudInitNoCloud": {"userData": f"#cloud-config\npassword: {SECRET}\n"}}]}}
BODY = msgspec.json.encode({**document("vm"), "spec": SPEC})
QUOTE = f"the user data has the passwd {SECRET} and is old"
HIDDEN = "the user data has the passwd [hidden] and is old"


def secret_create() -> Create:
    return replace(create(), body=BODY)


def actions(uid: str) -> dict[str, Action]:
    merge = three_way_merge(uid)
    return {
        "create": secret_create(),
        "patch": replace(patch(), body=BODY),
        "merge of an old secret": replace(merge, old=BODY),
        "merge of a new secret": replace(merge, new=BODY),
        "delete before a successor": replace(delete("vm", uid), successor=BODY),
    }


def answered(setup: ExecutorSetup, answer: Any) -> None:
    """Call `answer` for each request that writes or asks about a write. The result is the fault of the request."""
    setup.server.fault_for = lambda request: answer(request) if request.verb not in ("get", "list") else None


@pytest.mark.parametrize(
    "error",
    [
        refusal(403, "Forbidden", QUOTE),
        refusal(409, "AlreadyExists", QUOTE),
        refusal(409, "Conflict", QUOTE),
        refusal(422, "Invalid", QUOTE),
        refusal(500, "InternalError", QUOTE),
    ],
    ids=lambda error: error.reason,
)
@pytest.mark.parametrize("name", actions(""))
async def test_no_refusal_quotes_a_secret_of_the_written_object(setup, name: str, error: StatusError):
    action = actions(put_vm(setup, owner_uid="another"))[name]
    answered(setup, lambda _: refusal(error.code, error.reason, QUOTE))
    outcome = await setup.outcome_of(action)
    assert SECRET not in str(getattr(outcome, "message", ""))
    assert SECRET not in repr(getattr(outcome, "error", "")), "a log line can show the error"


@pytest.mark.parametrize("name", actions(""))
async def test_no_warning_quotes_a_secret_of_the_written_object(setup, name: str):
    action = actions(put_vm(setup))[name]
    answered(setup, lambda _: collect([f'299 - "{QUOTE}"']))
    with collected_warnings() as found:
        await setup.carry_out([action])
    assert list(found) == [HIDDEN]


async def test_each_warning_is_compared_with_the_object_that_it_is_about(setup):
    """Two objects of one plan have secrets of their own. A text about one object is not the secret of the other."""

    def warn(request: Request) -> None:
        collect([f'299 - "{request.key.name} has {request.key.name}-{SECRET}"'])

    def body(name: str) -> bytes:
        return msgspec.json.encode({**document(name), "spec": {"userData": f"key: {name}-{SECRET}"}})

    answered(setup, warn)
    creates = [replace(create(name), body=body(name)) for name in ("first", "second")]
    with collected_warnings() as found:
        await setup.carry_out(creates)
    assert sorted(found) == ["first has [hidden]", "second has [hidden]"]


async def test_a_refusal_that_is_remembered_for_the_next_create_is_not_readable_either(setup):
    answered(setup, lambda _: refusal(403, "Forbidden", QUOTE, "NamespaceTerminating"))
    first, second = [await setup.outcome_of(secret_create()) for _ in range(2)]
    assert [str(first.error), str(second.error)] == [HIDDEN, HIDDEN]
    assert len(setup.server.requests) == 1
