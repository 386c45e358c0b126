"""The experiments of the demo."""

import json

from sandbox.demo.experiments import EXPERIMENTS


def test_an_update_repairs_a_bad_image() -> None:
    def annotations(key: str) -> dict[str, str | None]:
        change = json.loads(EXPERIMENTS[key].commands[0][-1])
        found = change["spec"]["virtualMachineTemplate"]["spec"]["template"]["metadata"]["annotations"]
        return dict(found)

    assert [annotations("2")[name] for name in annotations("4")] == [None]
