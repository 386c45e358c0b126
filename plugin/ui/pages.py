"""The pages as HTML: all sets and pools, one of them with its VMs, and an error. The functions are pure.

Its table, tiles and Events have times, not ages, so their text changes only if the cluster changes. The script shows
the times as ages, and adds a filter, columns that sort, and buttons that copy commands.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from msgspec import Struct

from controller.apimachinery.conditions import time_text, with_timezone
from controller.replicas.conditions import counted
from controller.replicas.history import Fact
from plugin.ui.html import Content, Markup, markup, path, tag
from plugin.views.listing import newest_first, sick_first, why_of_member
from plugin.views.reasons import COMMANDS, Reason, summary_of
from plugin.views.rollout import progress_of
from plugin.views.situation import Member, Situation
from plugin.views.tables import BAD, GOOD

COLUMNS = ("Namespace", "Name", "Status", "Ready", "Updated", "Revision", "Age", "Problem")


Event: TypeAlias = Mapping[str, Any]


class Top(Struct, frozen=True):
    """What both pages say first: what the user may not read, a warning, and the leader's name. They may be empty."""

    missing: Iterable[str] = ()
    warning: str = ""
    leader: str = ""


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
    header = tag("header", tag("a", "vmherd", href=root), tag("span", "read only", class_="seen"))
    body = tag("body", header, lost, tag("main", main), data_live=f"{root}live/{place}")
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def fleet_page(root: str, where: str, situations: Sequence[Situation], top: Top) -> Markup:
    """Return the page of all sets and pools. `where` is their namespace, or "" for all."""
    ready, wanted = sum(each.ready for each in situations), sum(each.wanted for each in situations)
    counts = f"{len(situations)} objects, {ready} of {wanted} VMs are ready."
    head = tag("thead", tag("tr", [tag("th", each) for each in COLUMNS]))
    table = tag("table", head, tag("tbody", [_fleet_row(root, each) for each in situations]))
    shown = [tag("p", counts), table] if situations else tag("p", "There are no sets and no pools here.")
    place = f"namespace {where}" if where else "all namespaces"
    title = tag("h1", f"Sets and pools: {place}")
    return markup([_warnings(top), title, _leader(top), shown])


def object_page(
    situation: Situation, reasons: Iterable[Reason], events: Sequence[Event], top: Top, facts: Sequence[Fact] = ()
) -> Markup:
    """Return the page of one set or pool: rollout, answer of `why`, VMs as tiles, history and Events."""
    this = situation.identity
    progress = progress_of(situation)
    done = f"{situation.available} of {situation.wanted} {this.member}s are available"
    bar = tag("progress", done, value=str(situation.available), max=str(max(situation.wanted, 1)), aria_label=done)
    title = tag("h1", f"{this.short_path} ", tag("small", this.namespace), " ", _word(situation.word))
    buttons = ((each, _button("copy", each.text) if each.topic in COMMANDS else "") for each in reasons)
    why = [
        tag("div", tag("dt", each.topic), tag("dd", each.text, button), class_=f"topic {each.topic}")
        for each, button in buttons
    ]
    return markup(
        [
            _warnings(top),
            title,
            tag("p", summary_of(situation)),
            _leader(top),
            tag("section", tag("h2", "Rollout"), bar, tag("p", f"{done}. {progress.message}")),
            tag("section", tag("h2", "Why"), tag("dl", why) if why else tag("p", "Nothing waits.")),
            tag(
                "section",
                tag("h2", counted(len(situation.members), this.member, f"{this.member}s")),
                tag("ul", _tiles(situation), class_="tiles"),
            ),
            _list("History", map(_of_fact, newest_first(facts)), "vmherd has noted nothing."),
            _list("Events", map(_of_event, events), "There are no Events."),
        ]
    )


def error_page(line: str) -> Markup:
    return markup([tag("h1", "This cannot be shown now"), _alarm(line)])


def _alarm(line: str) -> Content:
    return tag("p", line, class_="error", role="alert") if line else ""


def _warnings(top: Top) -> Sequence[Content]:
    notes = (tag("p", f"Not everything is shown: {line}", class_="note") for line in top.missing)
    return [_alarm(top.warning), *notes]


def _leader(top: Top) -> Content:
    return tag("p", f"Leader: {top.leader}", class_="leader") if top.leader else ""


def _button(label: str, command: str) -> Markup:
    """Return the place of a button that copies a command. Without the script it is empty."""
    return tag("span", class_="copy", data_label=label, data_command=command)


def _fleet_row(root: str, situation: Situation) -> Markup:
    this = situation.identity
    link = tag("a", this.short_path, href=root + path(this.namespace, this.plural, this.name))
    counts = f"{situation.ready}/{situation.wanted}{situation.beside}", str(situation.updated)
    shown = (*counts, situation.revisions, _time(situation.created), situation.problem)
    cells = (this.namespace, link, _word(situation.word), *shown)
    return tag("tr", [tag("td", cell, data_name=name) for name, cell in zip(COLUMNS, cells, strict=True)])


def _word(word: str) -> Markup:
    colour = "good" if word in GOOD else "bad" if BAD.fullmatch(word) else "busy"
    return tag("span", word, class_=f"word {colour}")


def _tiles(situation: Situation) -> Iterable[Markup]:
    for member in sick_first(situation, situation.members):
        restarts = counted(member.restarts, "restart", "restarts") if member.restarts else ""
        facts = (f"revision {member.revision or 'unknown'}", member.image, member.node, restarts)
        why, console = why_of_member(situation, member), f"virtctl console {member.name}"
        yield tag(
            "li",
            tag("b", member.name),
            tag("span", member.status, class_="status"),
            tag("span", ", ".join(filter(None, facts)), class_="facts"),
            tag("span", "created ", _time(member.created), class_="facts"),
            tag("span", why, class_="reason") if why else "",
            _button("console", f"{console} -n {situation.identity.namespace}"),
            class_=f"tile {_state(member)}{'' if member.is_updated else ' outdated'}",
            data_name=member.name,
        )


def _state(member: Member) -> str:
    state = "good" if member.is_ready else "bad" if member.problem else "busy"
    return "busy" if member.is_deleting else state


def _time(then: datetime | None) -> Content:
    then = with_timezone(then)
    return tag("time", f"{then:%Y-%m-%d %H:%M:%S}Z", datetime=time_text(then)) if then is not None else ""


def _of_fact(each: Fact) -> Markup:
    return _happened(_time(each.until), each.reason, each.times, each.text)


def _of_event(each: Event) -> Markup:
    at, times = last_of(each), each.get("count") or 1
    what = (each.get("reason") or "", times, each.get("message") or "")
    return _happened(tag("time", at, datetime=at), *what, is_bad=each.get("type") == "Warning")


def _happened(time: Content, reason: str, times: int, text: str, *, is_bad: bool = False) -> Markup:
    often = f" ({times} times)" if times > 1 else ""
    return tag("li", time, " ", tag("b", reason), often, f" {text}", class_="bad" if is_bad else "")


def _list(title: str, rows: Iterable[Markup], otherwise: str) -> Markup:
    found = [*rows]
    return tag("section", tag("h2", title), tag("ul", found, class_="events") if found else tag("p", otherwise))
