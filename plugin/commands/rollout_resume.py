"""`kubectl vmherd rollout resume`: ends the pause of an object."""

from __future__ import annotations

from typing import Any

import click

from plugin.commands.rollout_pause import set_paused
from plugin.connection import carry_out
from plugin.flags import Verb, flags_of
from plugin.subjects import METAVAR, parse_subjects
from plugin.verbs import FLAGS


@click.command("resume", cls=Verb, own=FLAGS["rollout resume"], help="End the pause of an object.")
@click.argument("arguments", nargs=-1, metavar=METAVAR)
def command(arguments: tuple[str, ...], **values: Any) -> None:
    subjects, flags = parse_subjects(arguments), flags_of(values)
    carry_out(flags, lambda session: set_paused(session, subjects, paused=False))
