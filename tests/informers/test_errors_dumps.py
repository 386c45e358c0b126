"""The text of an error contains no dump of an object and no control characters."""

import json

import pytest

from informers.errors import MESSAGE_LIMIT, Status, from_status

SECRET = "s3cr3t-Marker"
OBJECT = {"kind": "VirtualMachine", "spec": {"volumes": [{"userData": f"a\n{SECRET}"}]}}


@pytest.mark.parametrize(
    "dump",
    [
        json.dumps(OBJECT),
        json.dumps(OBJECT, indent=2),
        json.dumps([OBJECT]),
        json.dumps(json.dumps(OBJECT)),
        f"map[kind:VirtualMachine spec:map[userData:{SECRET}]]",
        f'map[string]interface {{}}{{"userData":"{SECRET}"}}',
        f'&v1.VirtualMachine{{Spec:v1.Spec{{UserData:"{SECRET}"}}}}',
        json.dumps({"first": "x" * 3000, "secret": SECRET}),
        json.dumps(OBJECT)[:-5],
    ],
)
def test_a_dump_of_the_object_is_left_out(dump: str) -> None:
    error = from_status(Status(message=f'admission webhook "w" denied the request: bad: {dump}'), code=403)
    assert SECRET not in str(error)
    assert str(error).startswith('admission webhook "w" denied the request: bad: ')
    assert len(str(error)) <= MESSAGE_LIMIT


@pytest.mark.parametrize(
    "message",
    [
        'virtualmachineinstances.kubevirt.io "x" is forbidden: exceeded quota: few, requested: count/x=1, limited: 3',
        "spec.a[0].b: Invalid value: \"x y\": a lowercase RFC 1123 label must match '[a-z0-9]([-a-z0-9]*[a-z0-9])?'",
        'Operation cannot be fulfilled on pools "x": the object has been modified; please apply your changes',
        'spec.selector: Invalid value: "object": does not match the labels {app} of the template',
    ],
)
def test_a_message_without_a_dump_stays_as_it_is(message: str) -> None:
    assert str(from_status(Status(message=message), code=422)) == message


def test_a_message_cannot_begin_a_new_line_of_the_log() -> None:
    error = from_status(Status(message="one\r\ntwo\x1b[31m\u202ethree\x00"), code=422)
    assert "\r" not in str(error)
    assert "\x1b" not in str(error)
    assert "\u202e" not in str(error)
