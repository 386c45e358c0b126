"""The rules of the chart's roles, as named templates.

What the controller may do comes from `controller.preflight.permissions`, and so is exactly what its startup check
asks for. What people may do with the two kinds is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, structs

from controller.config.modes import Mode
from controller.config.settings import Config, groups_in
from controller.kinds import KINDS
from controller.preflight.permissions import Permission, permissions_needed

HEADER = (
    "{{/* Made by `python -m charts` from controller/preflight/permissions.py and charts/rules.py: "
    "change these, not this. */}}\n"
)

_WATCHED, _OWN, _KUBEVIRT, _CLUSTER = "watched", "own", "kubevirt", ""
_LEASE = "lease"
_GROUPS = {kind.group_setting: f"{kind.name}s.invalid" for kind in KINDS}

INCLUDED: Mapping[str, str] = {
    **{_GROUPS[kind.group_setting]: f'{{{{ include "vmherd.{kind.name}Group" . }}}}' for kind in KINDS},
    _LEASE: '{{ include "vmherd.leaseName" . }}',
}
"""What stands for a setting, and what the chart puts in its place."""

_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete")


class Unplaced(ValueError):
    """The controller needs something that no role of the chart would give it. `str()` names it."""


class Rule(Struct, frozen=True):
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


def template() -> str:
    """The whole file: one named template for each set of rules."""
    parts = {**program_rules(), **people_rules()}
    return HEADER + "".join(_define(name, rules) for name, rules in parts.items())


def program_rules() -> dict[str, tuple[Rule, ...]]:
    """What the controller needs where it works, for its lease, to look on, to see that KubeVirt rests, and to ask who
    may scrape it."""
    working = Config(
        mode=Mode.ALONGSIDE.value,
        watch_namespaces=(_WATCHED,),
        leader_election_namespace=_OWN,
        leader_election_id=_LEASE,
        **_GROUPS,
    )
    taking_over = structs.replace(
        working,
        mode=Mode.TAKEOVER.value,
        **groups_in(Mode.TAKEOVER),
        kubevirt_namespace=_KUBEVIRT,
    )
    return {
        "work": _rules_in(_WATCHED, working),
        "lease": _rules_in(_OWN, working),
        "observe": _rules_in(_WATCHED, structs.replace(working, observe=True)),
        "takeover": _rules_in(_KUBEVIRT, taking_over),
        "scrapes": _rules_in(_CLUSTER, structs.replace(working, metrics_secure=True)),
    }


def _rules_in(namespace: str, config: Config) -> tuple[Rule, ...]:
    """What is needed in this namespace. Raises Unplaced for what no role of the chart would hold."""
    needed = permissions_needed(config)
    places = (_WATCHED, _OWN, _KUBEVIRT, *((_CLUSTER,) if config.metrics_secure else ()))
    if strays := [p.subject for p in needed if p.namespace not in places]:
        raise Unplaced(f"no role of the chart is for {', '.join(strays)}")
    return rules_for(p for p in needed if p.namespace == namespace)


def people_rules() -> dict[str, tuple[Rule, ...]]:
    """What people may do. Each has all that the one before it has, so that one alone will do."""
    kinds = [(_GROUPS[kind.group_setting], kind.plural) for kind in KINDS]

    def rules(*, whole: tuple[str, ...], scale: tuple[str, ...]) -> tuple[Rule, ...]:
        return tuple(
            rule
            for group, plural in kinds
            for rule in (
                Rule(group, (plural,), whole),
                Rule(group, (f"{plural}/status",), ("get",)),
                Rule(group, (f"{plural}/scale",), scale),
            )
        )

    may_scale = ("get", "update", "patch")
    return {
        "view": rules(whole=_READ, scale=("get",)),
        "edit": rules(whole=_READ + _WRITE, scale=may_scale),
        "admin": rules(whole=(*_READ, *_WRITE, "deletecollection"), scale=may_scale),
    }


def rules_for(permissions: Iterable[Permission]) -> tuple[Rule, ...]:
    """One rule for the resources of a group that have the same verbs, in the order of the permissions."""
    verbs: dict[tuple[str, str, str], list[str]] = {}
    for wanted in permissions:
        resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
        verbs.setdefault((wanted.group, resource, wanted.name), []).append(wanted.verb)
    resources: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for (group, resource, name), asked in verbs.items():
        resources.setdefault((group, tuple(asked), name), []).append(resource)
    return tuple(
        Rule(group, tuple(plurals), asked, (name,) if name else ())
        for (group, asked, name), plurals in resources.items()
    )


def _define(name: str, rules: Iterable[Rule]) -> str:
    return f'\n{{{{- define "vmherd.rules.{name}" }}}}\n' + "".join(map(_yaml, rules)) + "{{- end }}\n"


def _yaml(rule: Rule) -> str:
    lines = [
        f"- apiGroups: [{_word(rule.group)}]",
        f"  resources: [{', '.join(rule.resources)}]",
        *([f"  resourceNames: [{', '.join(map(_word, rule.names))}]"] if rule.names else []),
        f"  verbs: [{', '.join(rule.verbs)}]",
    ]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    return INCLUDED.get(text, text or '""')
