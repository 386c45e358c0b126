"""The definitions that `vmherd sandbox conformance` makes for each mode."""

from pathlib import Path
from typing import Any

import yaml

from controller.kinds import POOLS
from sandbox.commands import under_own_group, with_status


def definition() -> dict[str, Any]:
    path = Path(__file__).parents[2] / "manifests" / "crds" / "pool.kubevirt.io_virtualmachinepools.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_the_copy_in_the_own_group_has_its_own_name_and_short_names():
    copy = under_own_group(definition(), "pool.vmherd.dev", ("hvmpool",))
    assert copy["metadata"] == {"name": "virtualmachinepools.pool.vmherd.dev"}
    assert (copy["spec"]["group"], copy["spec"]["names"]["shortNames"]) == ("pool.vmherd.dev", ["hvmpool"])
    assert copy["spec"]["versions"] == definition()["spec"]["versions"]


def test_a_takeover_keeps_only_the_status_fields_of_kubevirt():
    original = definition()
    known = POOLS.known_status
    assert known is not None
    changed = with_status(original, known)
    for version in changed["spec"]["versions"]:
        assert set(version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]) == known
    assert original == definition()
