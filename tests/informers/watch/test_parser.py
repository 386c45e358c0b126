import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from informers.errors import Gone, ServerTimeout, TransportError
from informers.meta import KubeObject, ObjectMeta
from informers.resource import Resource
from informers.watch.parser import Applied, Bookmark, Deleted, Event, Undecodable, WatchError, WatchParser
from tests.informers.subjects import CONFIGMAPS, ConfigMap, bookmark, broken, config_map, failure, line


def parse(*chunks: bytes, resource: Resource[KubeObject] = CONFIGMAPS) -> list[Event[ConfigMap]]:
    parser = WatchParser(resource)
    return [event for chunk in chunks for event in parser.feed(chunk)]


RED5 = config_map("a", 5, color="red")


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (line("ADDED", RED5), Applied(RED5)),
        (line("MODIFIED", RED5), Applied(RED5)),
        (line("DELETED", RED5), Deleted(RED5)),
        (bookmark(77), Bookmark("77")),
        (bookmark(77, initial_end=True), Bookmark("77", initial_end=True)),
    ],
    ids=["added", "modified", "deleted", "bookmark", "the end of a streaming list"],
)
def test_a_line_is_one_event(text: bytes, event: Event[ConfigMap]):
    assert parse(text) == [event]


def test_an_error_event_has_the_exception_of_its_code():
    [expired] = parse(line("ERROR", failure(410, "Expired", "too old resource version: 1 (9)")))
    [too_new] = parse(line("ERROR", failure(504, "Timeout", "later", "ResourceVersionTooLarge", retry_after=1)))
    assert isinstance(expired, WatchError)
    assert isinstance(expired.error, Gone)
    assert str(expired.error) == "too old resource version: 1 (9)"
    assert isinstance(too_new, WatchError)
    assert isinstance(too_new.error, ServerTimeout)
    assert too_new.error.version_too_large
    assert too_new.error.retry_after_s == 1


@pytest.mark.parametrize(("kind", "deleted"), [("MODIFIED", False), ("DELETED", True)])
def test_an_undecodable_object_is_identified_and_the_next_event_is_parsed(kind: str, deleted: bool):
    undecodable, applied = parse(line(kind, broken("bad", 5)) + line("ADDED", config_map("good", 6)))
    assert isinstance(undecodable, Undecodable)
    assert undecodable.meta == ObjectMeta(name="bad", namespace="ns", uid="uid-of-bad", resource_version="5")
    assert "$.object.data" in undecodable.why
    assert undecodable.deleted is deleted
    assert applied == Applied(config_map("good", 6))


@pytest.mark.parametrize(
    "text",
    [
        b"<html>no</html>",
        b'{"type":"ADDED","object":{"metadata":',
        b"[]",
        b'{"type":"ADDED","object":7}',
        b"\xff\xfe",
        b"{}",
    ],
)
def test_text_that_is_not_an_event_is_undecodable_without_an_object(text: bytes):
    [event] = parse(text + b"\n")
    assert isinstance(event, Undecodable)
    assert event.meta is None


@pytest.mark.parametrize("type_", ["ADDED", "DELETED"])
def test_a_too_deeply_nested_object_is_undecodable_but_identified(type_: str):
    deep = {"metadata": {"name": "deep", "namespace": "ns", "resourceVersion": "5"}, "spec": "DEEP"}
    # Python 3.14 limits the depth by the size of the stack, so it accepts 100,000 levels.
    text = line(type_, deep).replace(b'"DEEP"', b"[" * 400_000 + b"]" * 400_000)
    [event, after] = parse(text + line("ADDED", config_map("a", 6)))
    meta = ObjectMeta(name="deep", namespace="ns", resource_version="5")
    assert event == Undecodable("the object is nested too deeply", meta, deleted=type_ == "DELETED")
    assert after == Applied(config_map("a", 6))


STREAM = b"".join(
    (
        line("ADDED", config_map("a", 5, color="grün")),
        bookmark(6),
        b"\n",
        line("DELETED", config_map("a", 7)),
        line("ERROR", failure(410, "Expired")),
    )
)


def outline(events: Iterable[Event[ConfigMap]]) -> list[str]:
    return [repr(event) for event in events]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_the_stream_may_be_split_into_any_chunks(cuts: list[int]):
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(edges)]
    assert outline(parse(*chunks)[:3]) == outline(parse(STREAM)[:3])


def test_an_object_of_sixteen_mebibytes_is_decoded():
    big = config_map("big", 5, color="x" * (16 << 20))
    text = line("ADDED", big) + line("ADDED", config_map("small", 6))
    chunks = [text[start : start + 65536] for start in range(0, len(text), 65536)]
    assert parse(*chunks) == [Applied(big), Applied(config_map("small", 6))]


def test_a_line_over_the_limit_raises():
    parser = WatchParser(CONFIGMAPS, line_limit=1000)
    parser.feed(b"x" * 900)
    with pytest.raises(TransportError, match="more than 1000 bytes"):
        parser.feed(b"x" * 200)
