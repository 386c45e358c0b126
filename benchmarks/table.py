"""The table of a result."""

from collections.abc import Iterable

from benchmarks.case import QUIET, Case, Measure, Result, is_usable

NOT_USABLE = "not usable"


def table(case: Case, *results: Result) -> str:
    """Return a section in Markdown, with a table for each result. A bold median has missed its target."""
    other = "" if results[0].subject == "vmherd" else f" (`{results[0].subject}`)"
    lines = [f"### {case.title}: {results[0].size:,} {case.unit_of_size}{other}", "", case.about]
    for result in results:
        lines += ["", "| figure | target | min | median | max |", "| --- | --- | --- | --- | --- |"]
        lines += [*_rows(case, result), "", _conditions(result), "", f"Command: `{result.command}`"]
    return "\n".join(lines)


def _rows(case: Case, result: Result) -> Iterable[str]:
    for measure in case.measures:
        spread = result.spread(measure.key)
        if spread is None:
            continue
        target = f"at most {number(measure.target, measure)}" if measure.target is not None else ""
        cells = [number(value, measure) for value in spread] if is_usable(measure, result) else [NOT_USABLE] * 3
        if measure.target is not None and is_usable(measure, result) and spread[1] > measure.target:
            cells[1] = f"**{cells[1]}**"
        unit = f" ({measure.unit})" if measure.unit else ""
        yield f"| {measure.title}{unit} | {' | '.join([target, *cells])} |"


def number(value: float, measure: Measure) -> str:
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
