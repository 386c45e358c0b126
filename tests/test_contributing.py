"""The examples of CONTRIBUTING.md that need no control plane run."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).resolve().parent.parent / "CONTRIBUTING.md").read_text()


def example(heading: str) -> dict[str, Any]:
    """The names that the code below this heading defines."""
    section = PAGE.partition(f"\n### {heading}\n")[2].partition("\n### ")[0]
    [code] = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": f"example of {heading}"}
    exec(compile(code, f"CONTRIBUTING.md, {heading}", "exec"), names)
    return names


def run_example(heading: str, **fixtures: Any) -> None:
    """Call the test function of an example with the fixtures that it asks for."""
    [test] = [value for name, value in example(heading).items() if name.startswith("test_")]
    test(**fixtures)


def test_the_example_of_a_plan() -> None:
    run_example("A plan")


def test_the_example_of_a_simulation() -> None:
    run_example("A simulation")


def test_all_examples_are_run() -> None:
    headings = re.findall(r"^### (.+)\n\n```python", PAGE, re.MULTILINE)
    run = {"A plan", "A simulation", "A conformance case", "A test on the control plane", "A fault"}
    assert set(headings) == run
