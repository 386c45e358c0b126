"""What an update does to a running VM fits what KubeVirt did in the recording."""

import json
from copy import deepcopy
from typing import Any

import pytest
import yaml

from controller.apimachinery.field_error import FieldError
from controller.kubevirt.live_updates import RolloutSettings
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.rollout.effects import Effect, effect_between
from controller.pool.spec.template import Template, parse_template
from tests.pool_builders import LABELS, pool
from tests.realkubevirt.live_changes import RECORDING, SCRIPT, operations
from tests.realkubevirt.live_page import effect_of

RECORDED = json.loads(RECORDING.read_text())
SCENES = yaml.safe_load(SCRIPT.read_text())
FITTING = {
    Effect.NOTHING: {"nothing"},
    Effect.NO_RESTART: {"nothing", "stop"},
    Effect.LIVE: {"live", "live migration", "restart"},
    Effect.RESTART: {"restart", "eviction", "no end", "live", "live migration", "nothing"},
    Effect.RECREATE: {"restart"},
}
"""What KubeVirt may do with a change, by what vmherd foretells. KubeVirt may ask for a restart after a live change. It
gives the labels of the VMI template to no running VMI, so the pool restarts the VM.
"""


def template(changes: list[Any]) -> Template:
    vm: dict[str, Any] = deepcopy({"metadata": {"labels": {}}, "spec": SCENES["vm"]})
    vm["spec"]["template"]["metadata"]["annotations"] = {}
    for each in operations(changes):
        place: Any = vm
        *parents, name = each["path"].split("/")[1:]
        for parent in parents:
            place = place[int(parent) if isinstance(place, list) else parent]
        if each["op"] == "remove":
            place.pop(int(name) if isinstance(place, list) else name)
        elif isinstance(place, list):
            place.append(each["value"])
        else:
            place[name] = each["value"]
    found = parse_template(pool(spec=vm["spec"], labels=LABELS | vm["metadata"]["labels"]).spec)
    assert not isinstance(found, FieldError)
    return found


@pytest.mark.parametrize("change", RECORDED)
def test_p13_an_update_does_to_a_running_vm_what_kubevirt_did(change: str) -> None:
    first = SCENES["first"].get(change, [])
    past, current = template(first), template([*first, *SCENES["changes"][change]])
    for setting, (strategy, methods, can_migrate) in SCENES["settings"].items():
        if not can_migrate:
            continue  # the templates do not show this
        settings = RolloutSettings(changes=strategy == "LiveUpdate", migrates="LiveMigrate" in methods)
        effect = effect_between(past, current, LiveUpdates({}, settings) if settings.changes else None)
        did = effect_of(RECORDED[change][setting])
        assert did in FITTING[effect], (setting, effect, did)
