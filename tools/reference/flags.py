"""The page of all flags, from the commands of the program."""

from collections.abc import Iterable
from pathlib import Path

import click

from controller.cli import LazyCommand, vmherd
from controller.config.options import Command, Option
from plugin.cli import plugin
from plugin.flags import CONNECTION, Verb
from tools.reference.markdown import code, introduction, sentence, table

SOURCE = Path(__file__).with_name("flags.md.in")


def page() -> str:
    source = SOURCE.read_text()
    parts = [introduction(source)]
    for name, each in vmherd.commands.items():
        if isinstance(each, LazyCommand):
            parts += _command(f"vmherd {name}", each)
    parts.append(source[source.index("## kubectl vmherd") :])
    for name, command in _verbs(plugin, "kubectl vmherd"):
        parts.append(f"### {name}\n\n{sentence(command.help or '')}\n")
        if command.own:
            parts.append(_plain(command.own))
    parts.append(f"### Flags of the connection\n\n{_plain(CONNECTION)}")
    return "\n".join(parts)


def _command(name: str, lazy: LazyCommand) -> Iterable[str]:
    command = lazy.load()
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from _described(f"{name} {inner.name}", inner)
    else:
        yield from _described(name, command)


def _described(name: str, command: click.Command) -> Iterable[str]:
    yield f"## {name}\n\n{sentence(command.help or '')}\n"
    if isinstance(command, Command):
        for title, options in command.groups.items():
            rows = [(_name(option), _default(option), sentence(option.help or "")) for option in options]
            text = table(("flag, variable", "default", "meaning"), rows)
            yield f"### {name}: {title[0].lower()}{title[1:]}\n\n{text}"
    else:
        plain = [param for param in command.params if isinstance(param, click.Option)]
        if plain:
            yield _plain(plain)


def _name(option: Option) -> str:
    names = [*sorted(option.opts, key=len, reverse=True), *([option.variable] if option.variable else [])]
    return ", ".join(code(name) for name in names)


def _default(option: Option) -> str:
    if option.unset:
        return option.unset
    return code(str(option.default)) if isinstance(option.default, str | int | float) else "none"


def _plain(options: Iterable[click.Option]) -> str:
    rows = []
    for option in options:
        names = [*sorted(option.opts, key=len, reverse=True), *option.secondary_opts]
        default = "required" if option.required else _plain_default(option)
        rows.append((", ".join(code(name) for name in names), _values(option), default, sentence(option.help or "")))
    return table(("flag", "values", "default", "meaning"), rows)


def _plain_default(option: click.Option) -> str:
    if option.is_flag:
        return "on" if option.default is True else "off"
    return code(str(option.default)) if isinstance(option.default, str | int | float) and option.default != "" else ""


def _values(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return ", ".join(code(str(choice)) for choice in option.type.choices)
    return "" if option.is_flag else (option.metavar or option.type.name).lower()


def _verbs(group: click.Group, path: str) -> Iterable[tuple[str, Verb]]:
    for name, each in group.commands.items():
        command = each.load() if isinstance(each, LazyCommand) else each
        if isinstance(command, click.Group):
            yield from _verbs(command, f"{path} {name}")
        elif isinstance(command, Verb):
            yield f"{path} {name}", command
