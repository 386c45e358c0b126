"""The program `kubectl_complete-vmherd`. kubectl calls this program when a user presses TAB after `kubectl vmherd`.

The arguments are the words of the command line, and the last one is the incomplete word. Each line of the output is a
completion, a tab and a description. The last line is a colon and a number that tells kubectl how to go on. kubectl
offers the result in bash, zsh, fish and PowerShell.

The completion of commands and flags needs no cluster, and imports nothing slow. If names cannot be read, there are no
completions: an error message would destroy the user's command line.
"""

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from plugin.cli import plugin, verb_first, without_rich
from plugin.flags import CONNECTION, flags_of
from plugin.verbs import ARGUMENTS, FLAGS, OBJECTS, flags_of_verb

NO_SPACE: Final = 2
NO_FILES: Final = 4
DIRECTIVES: Final = {"file": 0, "type": NO_FILES | NO_SPACE}
"""The numbers for completions of these types. All others end with a space, and are no files."""

NAMES_TIMEOUT_S: Final = 2.0
COMPLETION_S: Final = 5.0
"""The time limit of a completion. An exec plugin of the kubeconfig needs a part of it."""

SHOWN_TYPES: Final = {"vmpool": "pools of VMs", "vmirs": "replica sets of VMIs"}

REVISIONS: Final = "revisions"
"""The words after `--to-revision`: the numbers of the revisions of the object on the command line."""

Items = list[CompletionItem[str]]


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv) or [""]
    items = complete(words[:-1], words[-1])
    type_ = items[0].type if items else "plain"
    for item in items if type_ != "file" else ():
        print(f"{item.value}\t{item.help}" if item.help else item.value)
    print(f":{DIRECTIVES.get(type_, NO_FILES)}")
    return 0


def complete(before: Sequence[str], incomplete: str) -> Items:
    name, equals, value = incomplete.partition("=")
    if equals and any(each.is_flag and name in each.opts for flags in FLAGS.values() for each in flags):
        return _starting(value, (("true", ""), ("false", "")))
    tree = Commands("", commands=plugin.commands, params=[*map(_completing, CONNECTION)])
    return ShellComplete(tree, {}, "", "").get_completions(verb_first([*before]), incomplete)


class Commands(click.Group):
    """A group of the plugin. Its commands have only their flags, so nothing of them is imported."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command, path = self.commands.get(cmd_name), f"{self.name} {cmd_name}".strip()
        if command is None or isinstance(command, click.Group):
            return command and Commands(path, commands=command.commands, params=self.params)
        words = click.Argument(["words"], nargs=-1, shell_complete=_names)
        return Leaf(path, params=[words, *map(_completing, flags_of_verb(path)), *self.params])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> Items:
        if incomplete.startswith("-"):
            return _flags(self, incomplete)
        shown = [each for each in self.commands.values() if not each.hidden]
        return _starting(incomplete, ((each.name or "", each.short_help or "") for each in shown))


class Leaf(click.Command):
    def shell_complete(self, ctx: click.Context, incomplete: str) -> Items:
        return _flags(self, incomplete)


def _flags(command: click.Command, incomplete: str) -> Items:
    flags = [each for each in command.params if isinstance(each, click.Option)]
    return _starting(incomplete, ((max(each.opts, key=len), each.help or "") for each in flags))


def _completing(option: click.Option) -> click.Option:
    values = {
        "namespace": lambda ctx, _, text: named(ctx, "namespaces", text),
        "to_revision": lambda ctx, _, text: named(ctx, REVISIONS, text),
        "to": lambda ctx, _, text: typed(ctx, text, [*SHOWN_TYPES]),
        "kubeconfig": click.Path().shell_complete,
    }
    name = option.name or ""
    return (
        click.Option([*option.opts, name], help=option.help, shell_complete=values[name]) if name in values else option
    )


def _starting(incomplete: str, words: Iterable[tuple[str, str]], type_: str = "plain") -> Items:
    return [CompletionItem(word, type_, help) for word, help in words if word.startswith(incomplete)]


def _arguments(ctx: click.Context) -> list[str]:
    # After a flag without a value, click leaves the arguments in `args`.
    return [*(ctx.params.get("words") or ()), *ctx.args]


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Return names of objects. If the names need a type and the type is incomplete, return types."""
    verb, arguments = ctx.command.name or "", _arguments(ctx)
    kind = ARGUMENTS.get(verb)
    if kind is None:
        return []
    if kind != OBJECTS:
        return typed(ctx, incomplete, ("vm", "vmi"))
    if arguments and "/" not in arguments[0]:
        return [each for each in named(ctx, arguments[0], incomplete) if each.value not in arguments[1:]]
    return typed(ctx, incomplete, (*SHOWN_TYPES, *(("vm",) if verb in ("tree", "why") else ())))


def typed(ctx: click.Context, incomplete: str, types: Sequence[str]) -> Items:
    type_, slash, _ = incomplete.partition("/")
    if slash:
        return named(ctx, type_, incomplete, prefix=f"{type_}/")
    return _starting(incomplete, ((f"{each}/", SHOWN_TYPES.get(each, "")) for each in types), "type")


def named(ctx: click.Context, type_: str, incomplete: str, *, prefix: str = "") -> Items:
    """Return the names of all objects of a type with a description, or nothing if they cannot be read."""
    import asyncio  # noqa: PLC0415  these imports are slow

    with without_rich():
        from plugin import names  # noqa: PLC0415

    around = [ctx.parent.params] if ctx.parent is not None else []
    given = {name: value for params in (*around, ctx.params) for name, value in params.items() if value}
    flags = flags_of({**given, "request_timeout_s": NAMES_TIMEOUT_S})
    owner = "".join(_arguments(ctx)[-1:]).rpartition("/")[2] if type_ == REVISIONS else ""
    found: list[tuple[str, str]] = []
    with suppress(Exception):
        reading = names.read_revisions(flags, owner) if owner else names.read(flags, type_)
        found = asyncio.run(asyncio.wait_for(reading, COMPLETION_S))
    return _starting(incomplete, ((f"{prefix}{name}", text) for name, text in found))


if __name__ == "__main__":
    sys.exit(main())
