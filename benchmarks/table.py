"""The table of a result."""

from collections.abc import Iterable

from benchmarks.case import QUIET, Case, Measure, Result, is_usable

NOT_USABLE = "not usable"


def heading(case: Case, result: Result) -> str:
    """Return the title of a section in Markdown, and what the case does."""
    other = "" if result.subject == "vmherd" else f" (`{result.subject}`)"
    return f"### {case.title}: {result.size:,} {case.unit_of_size}{other}\n\n{case.about}"


def table(case: Case, result: Result) -> str:
    """Return the figures in Markdown, and their conditions. A bold median has missed its target."""
    lines = ["| figure | target | min | median | max |", "| --- | --- | --- | --- | --- |", *_rows(case, result)]
    return "\n".join([*lines, "", _conditions(result), "", f"Command: `{result.command}`"])


def median(result: Result, measure: Measure) -> str:
    """Return the median with its unit, or "" if no round has the measure."""
    spread = result.spread(measure.key)
    return f"{_number(spread[1], measure)} {measure.unit}".strip() if spread else ""


def _rows(case: Case, result: Result) -> Iterable[str]:
    for measure in case.measures:
        spread = result.spread(measure.key)
        if spread is None:
            continue
        target = f"at most {_number(measure.target, measure)}" if measure.target is not None else ""
        cells = [_number(value, measure) for value in spread] if is_usable(measure, result) else [NOT_USABLE] * 3
        if measure.target is not None and is_usable(measure, result) and spread[1] > measure.target:
            cells[1] = f"**{cells[1]}**"
        unit = f" ({measure.unit})" if measure.unit else ""
        yield f"| {measure.title}{unit} | {' | '.join([target, *cells])} |"


def _number(value: float, measure: Measure) -> str:
    return f"{value:,.{measure.digits}f}"


def _conditions(result: Result) -> str:
    last = result.conditions[-1]
    rounds = len(result.rounds)
    text = (
        f"{rounds} round{'s' if rounds > 1 else ''}, {last.date}, revision {last.revision}, {last.cores} shared cores, "
        f"Python {last.python}. Other programs used {result.others:.0%} of the CPU."
    )
    if result.others > QUIET:
        text += " So the wall times are not usable."
    return text
