"""Tests of the architecture: purity of the planning modules, file lengths, tests for each rule."""

import ast
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from conformance.catalogue import CASES
from controller.kinds import KINDS
from controller.kubevirt import annotations
from controller.replicas.catalogue import CATALOGUE, OPAQUE, Place
from tests.test_rules import RULES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("informers", "controller", "plugin", "sandbox")
LONGEST_FILE = 399

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

BANNED_CALLS = frozenset(["input", "now", "open", "print", "today", "utcnow"])


def pure_modules() -> list[Path]:
    """The files of the modules that the import contract lists as pure. A folder stands for all its modules, except the
    modules that the contract exempts.
    """
    [contract] = [
        contract
        for contract in PROJECT["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("decisions are pure")
    ]
    bases = [ROOT.joinpath(*name.split(".")) for name in contract["source_modules"]]
    paths = [path for base in bases for path in (base.rglob("*.py") if base.is_dir() else [base.with_suffix(".py")])]
    exempt = [ignored.partition(" -> ")[0] for ignored in contract["ignore_imports"]]
    return [path for path in paths if not any(fnmatch(module_of(path), pattern) for pattern in exempt)]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def impurities(source: str) -> set[str]:
    """The impure operations in this code: waiting, clocks, input and output. The contract forbids impure modules."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in BANNED_CALLS:
                found.add(f"{name}()")
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                found.add("async")
            case ast.Global():
                found.add("global")
    return found


OWNERS = {Place.SET, Place.POOL}
PARSERS = ("controller/replicas/settings.py", "controller/replicaset/intent.py", "controller/pool/spec/")
"""The modules that read the settings on a set or pool."""


def settings_read(source: str) -> set[str]:
    """The names of the annotations of a set or pool that users write, and that this code reads."""
    values = {each.name for each in CATALOGUE if set(each.on) <= OWNERS and each.value is not OPAQUE}
    names = {name for name, value in vars(annotations).items() if isinstance(value, str) and value in values}
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="setting" | "time_limit" | "is_marked"), args=[*_, ast.Name(id=name)]):
                found.add(name)
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Name(id=name), *_]):
                found.add(name)
            case ast.Compare(left=ast.Name(id=name), ops=[ast.In() | ast.NotIn()]):
                found.add(name)
            case ast.Subscript(slice=ast.Name(id=name), ctx=ast.Load()):
                found.add(name)
    return found & names


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_the_settings_of_a_set_or_pool_are_read_once_by_the_parsers():
    read = {
        path.relative_to(ROOT).as_posix(): found
        for path in sources("controller/replicas", "controller/replicaset", "controller/pool")
        if (found := settings_read(path.read_text()))
    }
    of_revisions = read.pop("controller/pool/members/revisions.py")
    assert of_revisions == {"INDEX_SYSPREP"}, "a revision stores this setting of its time"
    assert [path for path in read if not path.startswith(PARSERS)] == []
    assert {"ROLLING_UPDATE", "PARTITION", "DRAIN_SECONDS"} <= set().union(*read.values())


@pytest.mark.parametrize(
    "source",
    ["setting(meta, ROLLBACK)", "PARTITION in annotations_of(meta)", "found.get(TAKEOVER, '')", "found[MIN_READY]"],
)
def test_a_setting_that_is_read_is_found(source: str):
    assert settings_read(source)


def test_only_one_module_imports_the_library_that_loads_credentials():
    assert not [path for path in sources(*PACKAGES) if "kubernetes_asyncio" in modules_imported_by(path)]
    naming = [path.name for path in sources(*PACKAGES) if '"kubernetes_asyncio' in path.read_text()]
    assert naming == ["configuration.py"]


def modules_imported_by(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                found |= {alias.name.partition(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module.partition(".")[0])
    return found


@pytest.mark.parametrize("path", pure_modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_has_no_clock_no_randomness_and_no_side_effects(path):
    assert impurities(path.read_text()) == set()


def test_every_module_of_a_kind_except_rules_and_wiring_is_pure():
    packages = [kind.package.replace(".", "/") for kind in KINDS]
    assert {path.name for path in {*sources(*packages)} - {*pure_modules()}} == {"rules.py", "wiring.py"}


def test_the_import_contracts_name_every_kind():
    packages = {kind.package for kind in KINDS}
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    [independent] = [contract["modules"] for contract in contracts if contract["type"] == "independence"]
    assert set(independent) == packages


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("datetime.now(UTC)", "now()"),
        ("datetime.datetime.utcnow()", "utcnow()"),
        ("open('x')", "open()"),
        ("async def plan(): ...", "async"),
        ("def f():\n    global x", "global"),
    ],
)
def test_an_impurity_is_found(source, found):
    assert impurities(source) == {found}


@pytest.mark.parametrize("package", [*PACKAGES, "conformance", "tests", "benchmarks", "tools"])
def test_no_file_exceeds_the_length_limit(package):
    lengths = {path: len(path.read_text().splitlines()) for path in sources(package)}
    assert lengths
    assert {str(path): length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_rule_has_a_test_or_a_case_on_the_real_control_plane_that_carries_its_number():
    rules = {rule for rule in RULES if rule[0] in "RP"}
    assert {"R4a", "R17", "P19"} <= rules
    of_cases = {rule for case in CASES for rule in case.rules.split()}
    assert rules - rules_with_a_test() - of_cases == set()


def rules_with_a_test() -> set[str]:
    """The rules that the name (`test_r4a_...`) or the docstring ("P12: ...") of a test function mentions."""
    found = set()
    for path in sources("tests/integration"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                named = re.findall(r"_([rp])(\d+[ab]?)(?=_|$)", node.name)
                found |= {f"{kind.upper()}{number}" for kind, number in named}
                found |= set(re.findall(r"\b[RP]\d+[ab]?\b", ast.get_docstring(node) or ""))
    return found


def test_the_code_contains_no_todo_marks():
    reminder = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")))
    left = [str(path) for path in sources(*PACKAGES, "tests", "benchmarks") if reminder.search(path.read_text())]
    assert left == []


def test_the_licence_is_the_one_that_the_project_names():
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("name", ["run", "plugin", "dev", "audit", "release"])
def test_the_pins_have_hashes_and_name_no_address(name):
    text = (ROOT / ".ci" / f"requirements-{name}.txt").read_text()
    pins = re.split(r"\n(?=\S+==)", text)[1:]
    assert "://" not in text
    assert len(pins) > 10
    assert [pin.partition(" ")[0] for pin in pins if "--hash=sha256:" not in pin] == []


def test_every_required_package_is_pinned():
    project = PROJECT["project"]
    optional = project["optional-dependencies"]
    run = [*project["dependencies"], *optional["uvloop"], *optional["secure"]]
    dev = [*run, *optional["sandbox"], *PROJECT["dependency-groups"]["dev"]]
    assert names_in(run) - pinned("run") == set()
    assert names_in([*project["dependencies"], *optional["cli"]]) - pinned("plugin") == set()
    assert names_in(PROJECT["dependency-groups"]["release"]) - pinned("release") == set()
    assert names_in([*dev, *PROJECT["build-system"]["requires"]]) - pinned("dev") == set()


def test_the_packages_that_build_the_project_are_pinned():
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]
    assert names_in(PROJECT["dependency-groups"]["build"]) - pinned("build") == set()


@pytest.mark.parametrize("name", ["run", "plugin"])
def test_users_get_the_package_versions_of_the_tests(name):
    assert pinned_lines(name) <= pinned_lines("dev")


def names_in(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in requirements}


def pinned_lines(name: str) -> set[str]:
    text = (ROOT / ".ci" / f"requirements-{name}.txt").read_text()
    return {line.rstrip(" \\") for line in text.splitlines() if re.match(r"[A-Za-z0-9]\S*==", line)}


def pinned(name: str) -> set[str]:
    return {normal(line.partition("==")[0]) for line in pinned_lines(name)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def holders_of_state(source: str) -> set[str]:
    """The public classes that change their own attributes, or the containers in them, after their creation."""
    return {
        each.name
        for each in ast.parse(source).body
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_") and any(map(_changes_itself, each.body))
    }


def _changes_itself(method: ast.stmt) -> bool:
    if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) or method.name == "__init__":
        return False
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                return True
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self")), ctx=ast.Store() | ast.Del()):
                return True
            case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self")), attr=attr)) if (
                attr in CONTAINER_CHANGES
            ):
                return True
    return False


CONTAINER_CHANGES = {"add", "append", "clear", "discard", "pop", "popleft", "remove", "setdefault", "update"}


@pytest.mark.parametrize(
    ("body", "holds"),
    [
        ("self.number = 1", True),
        ("self.numbers[1] += 1", True),
        ("del self.numbers[1]", True),
        ("self.numbers.add(1)", True),
        ("return self.number", False),
    ],
)
def test_a_method_that_changes_its_object_is_found(body: str, holds: bool) -> None:
    assert holders_of_state(f"class A:\n    def f(self):\n        {body}\n") == ({"A"} if holds else set())
    assert holders_of_state(f"class A:\n    def __init__(self):\n        {body}\n") == set()


def test_the_page_about_the_architecture_names_each_holder_of_state() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## Where state lives")[2].partition("\n## ")[0]
    paths = (path for package in ("informers", "controller") for path in (ROOT / package).rglob("*.py"))
    holders = {name for path in paths for name in holders_of_state(path.read_text())}
    assert holders
    assert {name for name in holders if f"`{name}`" not in section} == set()


def test_only_these_modules_read_a_clock_other_than_that_of_the_loop():
    """The section "Clocks" of docs/informers.md gives the reasons."""
    reading = {module_of(path) for path in sources("informers", "controller") if "time" in modules_imported_by(path)}
    workers = "controller.runtime.workers"
    measuring = {"controller.metrics.registry", f"{workers}.loop_share", f"{workers}.side_thread"}
    assert reading == {"controller.assembly"} | measuring


def test_only_these_modules_wait_and_know_the_wall_clock():
    """The others cannot wait on it by mistake."""
    both = {
        module_of(path)
        for path in sources("informers", "controller")
        if {"asyncio", "datetime"} <= modules_imported_by(path)
    }
    assembly = {"controller.app", "controller.assembly"}
    times_of_objects = {"controller.runtime.reconciler", "controller.preflight.checks", "controller.events.recorder"}
    times_of_objects.add("controller.runtime.settle.history_writer")
    times_of_others = {
        "controller.takeover.other_process",
        "controller.takeover.second_writer",
        "informers.http.exec_plugin",
    }
    shown = {"controller.leaderelection.elector", "controller.runtime.execute.refusals"}
    assert both == assembly | times_of_objects | times_of_others | shown
