"""R14: a release of vmherd never changes the template hash of a stored set, because all its VMIs would be outdated."""

import json
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from controller import kubevirt
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from tests.builders import replicaset
from tests.strategies import template_hash_of

FROZEN: list[dict[str, Any]] = json.loads(Path(__file__).with_name("template_hashes.json").read_text())
"""Templates with their hashes. Both are never edited; new templates may be added."""


@pytest.mark.parametrize("frozen", FROZEN, ids=[each["hash"] for each in FROZEN])
def test_r14_the_hash_of_a_stored_template_is_frozen(frozen):
    template = VMITemplate(msgspec.convert(frozen["metadata"], TemplateMeta), Raw(frozen["spec"].encode()))
    assert template_hash_of(replicaset(template=template, match_labels={"app": "web"})) == frozen["hash"]


def test_r14_the_table_of_types_for_the_hash_is_frozen():
    table = files(kubevirt).joinpath("hash_types.json").read_bytes()
    assert sha256(table).hexdigest() == "cc9f5b18f739e86e1f1e30b2995f361bff3f95aaee14c244f9757b163f8cd166"
