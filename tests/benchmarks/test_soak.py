"""The soak judges a figure by the medians of the quarters of its samples."""

from collections.abc import Callable
from random import Random

import pytest

from benchmarks.soak import judge, sample
from controller.server.debug import describe_memory

COUNT = 400


@pytest.mark.parametrize(
    ("value", "flat"),
    [
        pytest.param(lambda number: 100 + 20 * number / COUNT, False, id="a slow leak"),
        pytest.param(lambda number: min(number, COUNT // 4), True, id="growth in the first quarter"),
        pytest.param(lambda number: 100 + 4 * number / COUNT, True, id="growth within the tolerance"),
        pytest.param(lambda number: COUNT - number, True, id="a fall"),
        pytest.param(lambda number: 100 if number < COUNT * 2 / 3 else 150, False, id="a step in the last third"),
        pytest.param(lambda number: 100 - 60 * 0.5 ** (8 * number / COUNT), True, id="an approach to a limit"),
        pytest.param(lambda number: 0 if number < COUNT * 2 / 3 else 0.9, True, id="up to the least tolerance"),
        pytest.param(lambda number: 0 if number < COUNT * 2 / 3 else 1.1, False, id="above the least tolerance"),
    ],
)
def test_a_figure_is_flat_if_it_grows_within_the_tolerance_after_the_warm_up(
    value: Callable[[int], float], flat: bool
) -> None:
    assert judge([float(value(number)) for number in range(COUNT)], least=1.0)[1] is flat


def test_noise_hides_no_leak() -> None:
    chance = Random(1)
    noise = [100 + chance.gauss(0, 3) for _ in range(COUNT)]
    assert judge(noise, least=1.0)[1]
    assert not judge([value + 20 * number / COUNT for number, value in enumerate(noise)], least=1.0)[1]


def test_a_sample_has_the_figures_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "1/metrics": '# HELP x\nprocess_open_fds 7.0\nvmherd_store_objects{a="b"} 2\nvmherd_store_objects{a="c"} 3\n'
        'process_resident_memory_bytes 2.097152e+06\nworkqueue_depth{name="q"} 1\n',
        "2/debug/tasks": "informer\n    run (informer.py:1)\nserver\n    serve (http.py:2)\n",
        "2/debug/memory": describe_memory(),
    }
    monkeypatch.setattr("benchmarks.soak.read", lambda address: pages[address])
    found = sample(1, 2)
    assert found.pop("blocks") > 1000
    assert found == {"MiB": 2, "tasks": 2, "files": 7, "series": 5, "left": 6}
