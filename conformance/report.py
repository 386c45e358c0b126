"""Reports of a run: a table for people, Markdown to send on, JSON for programs, and JUnit for test tools."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

import msgspec

from conformance.case import Case, Kind, Origin, Result, Status
from conformance.cluster import Cluster

SUFFIXES: Final[Mapping[str, str]] = {".json": "json", ".md": "markdown", ".xml": "junit"}
_MARGIN = " " * 10


def heading(cluster: Cluster) -> list[str]:
    """Return one line for each kind: its API group, and the controller that reconciles it."""
    return [
        f"{kind}: {subject.plural}.{subject.group}/{subject.version}, reconciled by {reconciler(cluster, kind)}"
        for kind, subject in cluster.subjects.items()
    ]


def reconciler(cluster: Cluster, kind: Kind) -> str:
    return cluster.reconcilers.get(kind, "") or "no controller that was seen"


def row(result: Result, width: int, place: str = "") -> list[str]:
    """Return the lines of the table for one result, a second one if it did not pass."""
    seconds = f"{result.seconds:6.1f}s" if result.seconds else " " * 7
    lines = [f"{place}{result.status:<8}  {result.case.id:<{width}}  {seconds}  {result.case.title}"]
    return [*lines, f"{' ' * len(place)}{_MARGIN}{result.detail}"] if result.detail else lines


def summary(results: Sequence[Result], seconds: float) -> str:
    counts = Counter(result.status for result in results)
    parts = ", ".join(f"{counts[status]} {status}" for status in Status)
    return f"{len(results)} cases in {seconds:.0f} s: {parts}"


def table(cluster: Cluster, results: Sequence[Result], seconds: float) -> str:
    width = max((len(result.case.id) for result in results), default=0)
    lines = [*heading(cluster), "", *(line for result in results for line in row(result, width))]
    return "\n".join([*lines, "", summary(results, seconds)]) + "\n"


def catalogue(cases: Sequence[Case]) -> str:
    lines = ["| case | behaviour | rules | from | needs |", "| --- | --- | --- | --- | --- |"]
    for case in cases:
        origin = "KubeVirt" if case.origin is Origin.KUBEVIRT else "vmherd"
        lines.append(f"| `{case.id}` | {case.title} | {case.rules} | {origin} | {', '.join(case.requires)} |")
    return "\n".join(lines) + "\n"


def as_markdown(cluster: Cluster, results: Sequence[Result], seconds: float) -> str:
    reconcilers = ((f"{kind} reconciled by", reconciler(cluster, kind)) for kind in cluster.subjects)
    known = (f"| {name} | {_cell(value)} |" for name, value in (*cluster.versions.items(), *reconcilers))
    lines = ["| cluster | |", "| --- | --- |", *known, ""]
    lines += ["| case | result | seconds | behaviour |", "| --- | --- | --- | --- |"]
    for each in results:
        why = f" ({_cell(each.detail)})" if each.detail else ""
        lines.append(f"| `{each.case.id}` | {each.status}{why} | {each.seconds:.0f} | {_cell(each.case.title)} |")
    return "\n".join([*lines, "", summary(results, seconds)]) + "\n"


def _cell(text: str) -> str:
    return _printable(text).replace("|", "\\|")


def as_json(cluster: Cluster, results: Sequence[Result], seconds: float) -> str:
    document = {
        "versions": cluster.versions,
        "kinds": {
            kind: {"group": subject.group, "version": subject.version, "reconciler": cluster.reconcilers.get(kind, "")}
            for kind, subject in cluster.subjects.items()
        },
        "seconds": round(seconds, 1),
        "counts": {status: sum(result.status is status for result in results) for status in Status},
        "cases": [
            {
                "id": result.case.id,
                "title": result.case.title,
                "kind": result.case.kind,
                "rules": result.case.rules.split(),
                "origin": result.case.origin,
                "status": result.status,
                "seconds": round(result.seconds, 2),
                "expected": result.expected,
                "seen": result.seen,
                "reason": result.reason,
            }
            for result in results
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"


def as_junit(cluster: Cluster, results: Sequence[Result], seconds: float) -> str:
    """Return a JUnit report. JUnit has no status `differs`, so a result with this status is a skipped test."""
    counts = Counter(result.status for result in results)
    suite = ElementTree.Element(
        "testsuite",
        name="vmherd conformance",
        tests=str(len(results)),
        failures=str(counts[Status.FAILED]),
        errors="0",
        skipped=str(counts[Status.SKIPPED] + counts[Status.DIFFERS]),
        time=f"{seconds:.1f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for kind in cluster.subjects:
        ElementTree.SubElement(properties, "property", name=f"{kind} reconciler", value=reconciler(cluster, kind))
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"conformance.{result.case.kind}",
            name=f"{result.case.id}: {result.case.title}",
            time=f"{result.seconds:.2f}",
        )
        match result.status:
            case Status.FAILED:
                ElementTree.SubElement(case, "failure", message=_printable(result.detail))
            case Status.SKIPPED:
                ElementTree.SubElement(case, "skipped", message=_printable(result.detail))
            case Status.DIFFERS:
                ElementTree.SubElement(case, "skipped", message=_printable(f"differs: {result.detail}"))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


FORMATS: Final = {"table": table, "markdown": as_markdown, "json": as_json, "junit": as_junit}


def render(format: str, cluster: Cluster, results: Sequence[Result], seconds: float) -> str:
    return FORMATS[format](cluster, results, seconds)
