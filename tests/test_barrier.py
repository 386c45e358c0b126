from typing import Any

import pytest

from tests.barrier import shows

WATCH = "/apis/kubevirt.io/v1/virtualmachines"


def listed(name: str, version: int) -> dict[str, Any]:
    return {"namespace": "ns", "name": name, "resourceVersion": str(version)}


@pytest.mark.parametrize(
    ("version", "cached", "objects", "expected"),
    [
        pytest.param("10", ["ns/a"], [listed("a", 10)], True, id="the same objects"),
        pytest.param("10", ["ns/a"], [listed("a", 10), listed("b", 9)], True, id="an object that the cache leaves out"),
        pytest.param("10", ["ns/a"], [listed("a", 11)], False, id="a change that the cache has not seen"),
        pytest.param("10", ["ns/a", "ns/b"], [listed("a", 9)], False, id="a deletion that the cache has not seen"),
        pytest.param("10", [], [], True, id="no object"),
        pytest.param("", [], [], False, id="before the first list"),
    ],
)
def test_a_cache_is_compared_with_a_list(
    version: str, cached: list[str], objects: list[dict[str, Any]], expected: bool
):
    assert shows({"watches": {WATCH: version}, "objects": cached}, objects) is expected


def test_a_cache_is_as_old_as_its_oldest_watch():
    cache = {"watches": {"/namespaces/a/vms": "9", "/namespaces/b/vms": "12"}, "objects": []}
    assert not shows(cache, [listed("a", 10)])
