"""The sampler and the shares of the functions."""

import time
from argparse import ArgumentParser

from benchmarks.profiles.phases import OWN, shares
from benchmarks.profiles.sampler import Sampler, name_of
from controller.runtime.execute.executor import Executor

FOLDED = "run;plan 60\nrun;write;encode 30\nrun 10\n"


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_the_sampler_finds_the_function_that_uses_the_cpu():
    sampler = Sampler()
    sampler.start()
    spin(0.3)
    sampler.stop()
    assert shares(sampler.folded(), own=False)["benchmarks/test_profiles.py:spin"] > 0.5


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
    assert name.startswith(OWN)
    assert not name_of(ArgumentParser.parse_args.__code__).startswith(OWN)


def test_the_largest_functions_come_first_by_their_own_samples_or_by_those_below_them():
    assert [*shares(FOLDED, own=True).items()][:2] == [("plan", 0.6), ("encode", 0.3)]
    assert shares(FOLDED, own=False) == {"run": 1.0, "plan": 0.6, "write": 0.3, "encode": 0.3}
