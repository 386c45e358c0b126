"""The sampler and the flame graph."""

import time
from xml.etree import ElementTree

from benchmarks.profiles import flame
from benchmarks.profiles.sampler import Sampler, name_of
from controller.runtime.execute.executor import Executor

FOLDED = "run;plan 60\nrun;write;encode 30\nrun 10\n"
SVG = "{http://www.w3.org/2000/svg}"


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_sampler_finds_the_function_that_uses_the_cpu():
    sampler = Sampler()
    sampler.start()
    spin(0.3)
    sampler.stop()
    assert flame.shares(sampler.folded(), own=False)["benchmarks/test_profiles.py:spin"] > 0.5


def test_a_stopped_sampler_takes_no_samples():
    sampler = Sampler()
    sampler.start()
    sampler.stop()
    before = sampler.folded()
    spin(0.05)
    assert sampler.folded() == before


def test_a_function_of_vmherd_has_the_name_of_its_folders_and_counts_as_own():
    name = name_of(Executor.__init__.__code__)
    assert name == "controller/runtime/execute/executor.py:Executor.__init__"
    assert name.startswith(flame.OWN)
    assert not name_of(ElementTree.fromstring.__code__).startswith(flame.OWN)


def test_the_largest_functions_come_first_by_their_own_samples_or_by_those_below_them():
    assert [*flame.shares(FOLDED, own=True).items()][:2] == [("plan", 0.6), ("encode", 0.3)]
    assert flame.shares(FOLDED, own=False) == {"run": 1.0, "plan": 0.6, "write": 0.3, "encode": 0.3}


def test_the_width_of_a_box_is_the_share_of_its_samples():
    picture = ElementTree.fromstring(flame.draw(FOLDED, "a <profile>"))
    boxes = {
        (group.findtext(f"{SVG}title") or ""): float(box.get("width", "0"))
        for group in picture.iter(f"{SVG}g")
        if (box := group.find(f"{SVG}rect")) is not None
    }
    assert boxes["plan 60.0%"] == 2 * boxes["encode 30.0%"]
    assert boxes["all 100.0%"] == boxes["run 100.0%"]
