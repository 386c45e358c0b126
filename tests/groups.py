"""Groups of tests: one pytest worker runs all tests of a group, so a group starts its control plane once."""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SHARED_PLANES = {
    "pool_plane": 4,
    "integration_plane": 3,
    "control_plane": 3,
    "idle_plane": 3,
    "kubevirt_plane": 1,
    "launcher_plane": 1,
    "broken_plane": 1,
    "conformance_run": 1,
    "hostile": 2,
    "real_node": 1,
}
"""The fixtures of shared control planes. For each fixture: into how many groups its tests are divided."""

LONGEST = ("real_node", "test_commands", "test_release")
"""The beginnings of the groups that need minutes. They start first."""

_running: list[pytest.FixtureDef[Any]] = []


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each group of tests to one worker, in the order of the collection.

    The base class gives tests to one worker if their IDs are equal before the last "::". So it gets IDs that consist of
    the group and the real ID.
    """

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        file = groups_file(node.workerinput)
        groups = json.loads(file.read_text())
        file.unlink()
        plain = [test.replace("::", "/") for test in collection]
        grouped = [f"{groups.get(test, name)}::{name}" for test, name in zip(collection, plain, strict=True)]
        self._real = dict(zip(grouped, collection, strict=True))
        super().add_node_collection(node, grouped)

    def remove_node(self, node: Any) -> str | None:
        """Remove a worker. Return the ID of the test during which the worker crashed."""
        crashed = super().remove_node(node)
        return self._real[crashed] if crashed else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """With `--dist loadgroup`, one worker runs all tests of a group. Workers without a group run the unit tests."""
    return GroupScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def groups_file(worker: Mapping[str, Any]) -> Path:
    """The file in which a worker tells the scheduler the groups of the collected tests."""
    return Path(tempfile.gettempdir()) / f"vmherd-groups-{worker['testrunuid']}-{worker['workerid']}.json"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests by their group, the longest groups first. The unit tests are at the end, the long ones first."""
    groups = groups_of(items)

    def place(item: pytest.Item) -> tuple[bool, int, str]:
        group = groups.get(item.nodeid, "")
        if not group and item.get_closest_marker("cluster") is None:
            return True, item.get_closest_marker("long") is None, ""
        longest = next((place for place, name in enumerate(LONGEST) if group.startswith(name)), len(LONGEST))
        return False, longest, group

    items.sort(key=place)
    if hasattr(config, "workerinput") and config.getoption("loadgroup", False):
        groups_file(config.workerinput).write_text(json.dumps(groups))


def groups_of(items: Iterable[pytest.Item]) -> dict[str, str]:
    """Return the group of each test that needs a control plane or has the marker e2e, by the ID of the test.

    The test files of a shared control plane are divided among its groups. All tests of another file are one group: they
    share what takes long, for example a release. A test that starts a control plane for itself alone has no group.
    """
    groups: dict[str, str] = {}
    files: dict[str, list[Path]] = {}
    for item in items:
        names = getattr(item, "fixturenames", ())
        if plane := next((name for name in SHARED_PLANES if name in names), ""):
            known = files.setdefault(plane, [])
            if item.path not in known:
                known.append(item.path)
            groups[item.nodeid] = f"{plane} {known.index(item.path) % SHARED_PLANES[plane]}"
        elif any(map(item.get_closest_marker, ("cluster", "e2e"))) and "own_plane" not in names:
            groups[item.nodeid] = item.path.stem
    return groups


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Before a control plane starts, stop the shared control planes that this test does not use. A control plane needs
    0.8 GB of memory.

    A later test that needs a stopped control plane gets a new control plane. A fixture with the same name, in another
    folder, is another control plane.
    """
    name = fixturedef.argname
    if name not in SHARED_PLANES or fixturedef.scope != "session":
        return
    for other in [each for each in _running if each.argname == name or each.argname not in request.fixturenames]:
        _running.remove(other)
        other.finish(request)
    _running.append(fixturedef)
