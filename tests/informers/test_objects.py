"""`read_version` finds the same version and the same errors in an answer as `read_meta`."""

import pytest

from informers.errors import TransportError
from informers.objects import read_meta, read_version

DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
OBJECT = b'{"kind":"VM","metadata":{"name":"vm-0","resourceVersion":"7","labels":{"a":"b"}},"spec":%b}'


@pytest.mark.parametrize(
    ("answer", "version"),
    [(OBJECT % b"{}", "7"), (OBJECT % DEEP, "7"), (b'{"metadata":{"name":"vm-0"}}', ""), (b'{"kind":"Status"}', "")],
)
def test_the_version_is_read_without_the_other_metadata(answer: bytes, version: str):
    assert (read_version(answer), read_meta(answer).resource_version) == (version, version)


@pytest.mark.parametrize("answer", [b"", b"[]", b"<html>", b"\xff", b'{"metadata":{"resourceVersion":7}}'])
def test_an_answer_that_is_not_an_object_may_be_the_answer_to_a_sent_request(answer: bytes):
    for read in (read_meta, read_version):
        with pytest.raises(TransportError) as raised:
            read(answer)
        assert raised.value.sent
