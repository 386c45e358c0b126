"""The experiments of the demo."""

import json

import yaml

from sandbox.demo.experiments import BROKEN, DETACHED, EXPERIMENTS, POOL_EXAMPLE, POOL_NAME, POOL_SIZE


def test_the_keys_are_1_to_7_and_0() -> None:
    assert [*EXPERIMENTS] == [*"12345670"]


def test_an_update_repairs_a_bad_image() -> None:
    def annotations(key: str) -> dict[str, str | None]:
        change = json.loads(EXPERIMENTS[key].commands[0][-1])
        found = change["spec"]["virtualMachineTemplate"]["spec"]["template"]["metadata"]["annotations"]
        return dict(found)

    assert [annotations("2")[name] for name in annotations("4")] == [None]


def test_the_experiments_name_vms_of_the_example() -> None:
    pool = yaml.safe_load(POOL_EXAMPLE.read_text())
    assert (pool["metadata"]["name"], pool["spec"]["replicas"]) == (POOL_NAME, POOL_SIZE)
    assert {BROKEN, DETACHED} <= {f"{POOL_NAME}-{ordinal}" for ordinal in range(POOL_SIZE)}
