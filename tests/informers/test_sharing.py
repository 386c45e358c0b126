from msgspec.json import encode

from informers import meta as metas
from informers.meta import MOST_ITEMS, MOST_VALUES, ObjectMeta, shared, shared_map
from tests.builders import seconds_ago
from tests.informers.subjects import CONFIGMAPS


def meta(name: str) -> ObjectMeta:
    owner = {"apiVersion": "v1", "kind": "Set", "name": "web", "uid": "u", "controller": True}
    metadata = {
        "name": name,
        "namespace": "team",
        "creationTimestamp": seconds_ago(1),
        "labels": {"app": "web"},
        "ownerReferences": [owner],
        "finalizers": ["example.org/kept"],
    }
    return CONFIGMAPS.decode(encode({"metadata": metadata})).metadata


def test_decoded_objects_share_equal_metadata():
    one, other = meta("one"), meta("other")
    assert one.labels is other.labels == {"app": "web"}
    assert one.owner_references is other.owner_references
    assert one.finalizers is other.finalizers == ("example.org/kept",)
    assert one.namespace is other.namespace == "team"


def test_a_large_value_is_not_remembered():
    items = [str(number) for number in range(MOST_ITEMS + 1)]
    assert shared(tuple(items)) is not shared(tuple(items))
    assert shared_map(dict.fromkeys(items, "")) is not shared_map(dict.fromkeys(items, ""))


def test_the_number_of_remembered_values_is_limited():
    for number in range(2 * MOST_VALUES):
        assert shared((str(number),)) == (str(number),)
    assert len(metas._values) <= MOST_VALUES
