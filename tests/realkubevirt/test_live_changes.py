"""What an update does to a running VM fits what KubeVirt did in the recording."""

import json

import pytest

from controller.kubevirt.live_updates import Change, RolloutSettings
from controller.pool.members.snapshot import LiveUpdates
from controller.pool.rollout.effects import Effect, effect_between
from controller.pool.rollout.live import live_change
from tools.realkubevirt.live_changes import RECORDING
from tools.realkubevirt.live_page import SCENES, effect_of, templates

RECORDED = json.loads(RECORDING.read_text())
CERTAIN = {"restart", "nothing"}
"""KubeVirt gives the labels and annotations of the VMI template to no running VMI, so the pool restarts the VM."""

FITTING = {
    Effect.NOTHING: {"nothing"},
    Effect.NO_RESTART: {"nothing"},
    Effect.LIVE: {"live", "live migration", "restart"},
    Effect.RESTART: {"restart", "eviction", "no end", "live", "live migration", "nothing"},
    Effect.STOP: {"stop"},
    Effect.RECREATE: {"restart"},
}
"""What KubeVirt may do with a change, by what vmherd foretells. KubeVirt may ask for a restart after a live change, and
may make a change for which the pool foretells a restart, because only the verdict tells.
"""


@pytest.mark.parametrize("change", RECORDED)
def test_p13_an_update_does_to_a_running_vm_what_kubevirt_did(change: str) -> None:
    past, current = templates(change)
    for setting, (strategy, methods, can_migrate) in SCENES["settings"].items():
        if not can_migrate:
            continue  # the templates do not show this
        rollout = RolloutSettings(changes=strategy == "LiveUpdate", migrates="LiveMigrate" in methods, judges=True)
        live, did = LiveUpdates({}, rollout), effect_of(RECORDED[change][setting])
        effect = effect_between(past, current, live)
        assert did in FITTING[effect], (setting, effect, did)
        if effect is Effect.RESTART and live_change(live, past, current) is Change.OTHER:
            assert did in CERTAIN, (setting, "a restart without a question")
