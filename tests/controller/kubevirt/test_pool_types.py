"""Decoding and encoding of pools: a decoded spec can be encoded again, and no field of a template is lost."""

import msgspec

from controller import kinds
from controller.kubevirt.pool_types import PoolSpec
from tests.controller.kubevirt.rebasing import without_nulls

POOLS = kinds.POOLS.resource()

TEMPLATE_SPEC = b'{ "runStrategy" : "Always", "unknown": 1.50, "big": 123456789012345678901234567890, "template": {} }'
SPEC = (
    b"""{
  "replicas": 3,
  "selector": {"matchLabels": {"app": "web"}},
  "virtualMachineTemplate": {"metadata": {"labels": {"app": "web"}, "creationTimestamp": null}, "spec": %s},
  "paused": true,
  "nameGeneration": {"appendIndexToConfigMapRefs": true, "appendIndexToSecretRefs": false},
  "maxUnavailable": "25%%",
  "scaleInStrategy": {"proactive": {"selectionPolicy": {"sortPolicy": "Oldest", "selectors": {
      "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
      "nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "In", "values": ["b"]}]}},
    "statePreservation": "Offline"}},
  "updateStrategy": {"opportunistic": {}},
  "autohealing": {"startUpFailureThreshold": 5, "minFailingToStartDuration": "10m"},
  "appendPostfixToSecretReferences": true
}"""
    % TEMPLATE_SPEC
)
WIRE = b'{"metadata":{"name":"web"},"spec":%s,"status":{"replicas":3,"conditions":null}}' % SPEC


def test_p11_a_decoded_and_encoded_spec_is_the_same():
    written = msgspec.json.encode(POOLS.decode(WIRE).spec)
    assert without_nulls(msgspec.json.decode(written)) == without_nulls(msgspec.json.decode(SPEC))
    assert msgspec.json.decode(written, type=PoolSpec) == POOLS.decode(WIRE).spec


def test_p11_a_template_reaches_its_revision_byte_for_byte():
    spec = POOLS.decode(WIRE).spec
    assert spec.virtual_machine_template is not None
    assert bytes(spec.virtual_machine_template.spec) == TEMPLATE_SPEC
    assert b'"spec":' + TEMPLATE_SPEC in msgspec.json.encode(spec)
