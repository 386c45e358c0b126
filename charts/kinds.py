"""What the chart has to know of each kind: its group and its names in the mode of the release, as named templates."""

from __future__ import annotations

import json

from controller.kinds import KINDS, Kind

HEADER = "{{/* Made by `python -m charts` from controller/kinds.py: change that, not this. */}}\n"


def template() -> str:
    """The whole file."""
    parts = [_by_mode(f"vmherd.{kind.name}Group", own=kind.own_group, other=kind.group) for kind in KINDS]
    parts += [
        _by_mode(f"vmherd.{kind.name}Name", own=kind.own_short_names[0], other=kind.short_names[0]) for kind in KINDS
    ]
    definitions = "\n".join(map(_definition, KINDS))
    parts.append(
        "{{/* What a kind's definition has in the mode of the release, by the kind: for `fromYaml`. */}}\n"
        f'{{{{- define "vmherd.kinds" -}}}}\n{definitions}\n{{{{- end }}}}\n'
    )
    return HEADER + "\n" + "\n".join(parts)


def _by_mode(name: str, *, own: str, other: str) -> str:
    choice = f'{{{{- if eq (include "vmherd.mode" .) "alongside" }}}}{own}{{{{ else }}}}{other}{{{{ end }}}}'
    return f'{{{{- define "{name}" -}}}}\n{choice}\n{{{{- end }}}}\n'


def _definition(kind: Kind[object]) -> str:
    own = json.dumps(kind.own_short_names)
    return f'{kind.kind}: {{group: {{{{ include "vmherd.{kind.name}Group" . }}}}, ownShortNames: {own}}}'
