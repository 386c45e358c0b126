"""The pages as HTML: all sets and pools, one of them with its VMs, and an error. The functions are pure.

A page shows times, not ages. So its text changes only if the cluster changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from controller.apimachinery.conditions import with_timezone
from plugin.ui.html import Content, Markup, markup, path, tag
from plugin.views.listing import why_of_member
from plugin.views.reasons import Reason, summary_of
from plugin.views.rollout import progress_of
from plugin.views.situation import Member, Situation
from plugin.views.tables import BAD, GOOD

COLUMNS = ("Namespace", "Name", "Status", "Ready", "Updated", "Revision", "Problem")


Event: TypeAlias = Mapping[str, Any]


def last_of(event: Event) -> str:
    return event.get("lastTimestamp") or event.get("eventTime") or ""


def document(root: str, place: str, title: str, main: Content) -> str:
    """Return the whole document. `root` is the path with the token, and `place` the page below it."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("link", rel="stylesheet", href=f"{root}style.css"),
        tag("script", src=f"{root}script.js", defer=""),
    )
    lost = tag("p", class_="lost", role="status")
    header = tag("header", tag("a", "vmherd", href=root), tag("span", "read only"))
    body = tag("body", header, lost, tag("main", main), data_live=f"{root}live/{place}")
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def fleet_page(
    root: str, where: str, situations: Sequence[Situation], missing: Iterable[str], warning: str = ""
) -> Markup:
    """Return the page of all sets and pools. `where` is their namespace, or "" for all. `warning` comes first."""
    ready, wanted = sum(each.ready for each in situations), sum(each.wanted for each in situations)
    counts = f"{len(situations)} objects, {ready} of {wanted} VMs are ready."
    head = tag("thead", tag("tr", [tag("th", each) for each in COLUMNS]))
    table = tag("table", head, tag("tbody", [_fleet_row(root, each) for each in situations]))
    shown = [tag("p", counts), table] if situations else tag("p", "There are no sets and no pools here.")
    place = f"namespace {where}" if where else "all namespaces"
    return markup([_alarm(warning), tag("h1", f"Sets and pools: {place}"), shown, _notes(missing)])


def object_page(
    situation: Situation, reasons: Iterable[Reason], events: Sequence[Event], missing: Iterable[str], warning: str = ""
) -> Markup:
    """Return the page of one set or pool: rollout, answer of `why`, VMs as tiles, and Events. `warning` comes first."""
    this = situation.identity
    progress = progress_of(situation)
    done = f"{situation.updated} of {situation.target} updated"
    bar = tag("progress", done, value=str(situation.updated), max=str(max(situation.target, 1)), aria_label=done)
    title = tag("h1", f"{this.short}/{this.name} ", tag("small", this.namespace), " ", _word(situation.word))
    why = [tag("div", tag("dt", each.topic), tag("dd", each.text), class_=f"topic {each.topic}") for each in reasons]
    number = len(situation.members)
    return markup(
        [
            _alarm(warning),
            title,
            tag("p", summary_of(situation)),
            tag("section", tag("h2", "Rollout"), bar, tag("p", progress.message)),
            tag("section", tag("h2", "Why"), tag("dl", why) if why else tag("p", "Nothing waits.")),
            tag(
                "section",
                tag("h2", f"{number} {this.member}{'' if number == 1 else 's'}"),
                tag("ul", _tiles(situation), class_="tiles"),
            ),
            tag("section", tag("h2", "Events"), _events(events)),
            _notes(missing),
        ]
    )


def error_page(line: str) -> Markup:
    return markup([tag("h1", "This cannot be shown now"), _alarm(line)])


def _alarm(line: str) -> Content:
    return tag("p", line, class_="error", role="alert") if line else ""


def _fleet_row(root: str, situation: Situation) -> Markup:
    this = situation.identity
    link = tag("a", f"{this.short}/{this.name}", href=root + path(this.namespace, this.plural, this.name))
    counts = f"{situation.ready}/{situation.wanted}", str(situation.updated)
    cells = (this.namespace, link, _word(situation.word), *counts, situation.revisions, situation.problem)
    return tag("tr", [tag("td", cell, data_name=name) for name, cell in zip(COLUMNS, cells, strict=True)])


def _word(word: str) -> Markup:
    colour = "good" if word in GOOD else "bad" if BAD.fullmatch(word) else "busy"
    return tag("span", word, class_=f"word {colour}")


def _tiles(situation: Situation) -> Iterable[Markup]:
    for member in situation.members:
        revision = member.revision or "unknown"
        facts = [f"revision {revision}", *filter(None, (member.node, _when(member.created)))]
        why = why_of_member(situation, member)
        yield tag(
            "li",
            tag("b", member.name),
            tag("span", member.status, class_="status"),
            tag("span", ", ".join(facts), class_="facts"),
            tag("span", why, class_="reason") if why else "",
            class_=f"tile {_state(member)}{'' if member.is_updated else ' outdated'}",
            data_name=member.name,
        )


def _state(member: Member) -> str:
    state = "good" if member.is_ready else "bad" if member.problem else "busy"
    return "busy" if member.is_deleting else state


def _when(then: datetime | None) -> str:
    then = with_timezone(then)
    return f"since {then:%Y-%m-%d %H:%M:%S}Z" if then is not None else ""


def _events(events: Sequence[Event]) -> Markup:
    if not events:
        return tag("p", "There are no Events.")
    rows = (
        tag(
            "li",
            tag("time", last_of(each)),
            " ",
            tag("b", each.get("reason") or ""),
            f" ({times} times)" if (times := each.get("count") or 1) > 1 else "",
            f" {each.get('message') or ''}",
            class_="bad" if each.get("type") == "Warning" else "",
        )
        for each in events
    )
    return tag("ul", rows, class_="events")


def _notes(missing: Iterable[str]) -> Sequence[Markup]:
    return [tag("p", f"Not everything is shown: {line}", class_="note") for line in missing]
