"""No text makes a regular expression of the product slow.

The matcher of Python tries many ways if a text does not match. A text is hard if a part of the expression matches it
again and again, in several ways or from several places, and its end does not match.
"""

import ast
import re
import string
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

import pytest

from controller.replicas.catalogue import CATALOGUE
from tests.cost.meter import TooSlow, seconds

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ("controller", "informers", "plugin", "conformance")
CALLED: Final = re.compile(r"\b([A-Z_]+)\.(match|fullmatch|search|findall|finditer|subn?|split)\b")
MSGSPEC: Final = re.compile(r"\bMeta\([^)]*pattern\b")

VALUES: Final = "value.pattern"
"""The expression in the source that stands for all patterns of the catalogue of annotations."""


class Use(NamedTuple):
    """A compiled pattern, the method that is called, and the place in the source."""

    pattern: re.Pattern[Any]
    method: str
    place: str


def uses() -> Iterator[Use]:
    """Yield each pattern of the product with each method that is called. A pattern that no method uses is searched."""
    sources = {path: path.read_text() for name in PRODUCT for path in sorted((ROOT / name).rglob("*.py"))}
    called = set(CALLED.findall("\n".join(sources.values())))
    for path, source in sources.items():
        assert not MSGSPEC.search(source), f"{path}: a pattern of msgspec is not tested"
        if "import re\n" not in source:
            assert "from re import" not in source, f"{path}: write `import re`, so that the patterns are found"
            continue
        tree = ast.parse(source)
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            function, parent = call.func, parents[call]
            if not isinstance(function, ast.Attribute) or ast.unparse(function.value) != "re":
                continue
            methods = [function.attr]
            if function.attr == "compile" and isinstance(parent, ast.Attribute):
                methods = [parent.attr]
            elif function.attr == "compile":
                names = {ast.unparse(each) for each in _targets(parent)}
                methods = sorted(method for name, method in called if name in names) or ["search"]
            for pattern, method in product(_patterns_of(call, path), methods):
                yield Use(pattern, method, f"{path.relative_to(ROOT)}:{call.lineno}")


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _patterns_of(call: ast.Call, path: Path) -> list[re.Pattern[Any]]:
    if ast.unparse(call.args[0]) == VALUES:
        return [re.compile(each, re.ASCII) for each in sorted({each.value.pattern for each in CATALOGUE})]
    module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    keywords = [each.value for each in call.keywords if each.arg == "flags"]
    flags = [each for each in (*call.args[1:], *keywords) if ast.unparse(each).startswith("re.")]
    texts = (ast.unparse(each) for each in (call.args[0], *flags))
    return [re.compile(*(eval(text, vars(module)) for text in texts))]


def hard_texts(pattern: re.Pattern[Any], size: int) -> Iterator[Any]:
    """Yield texts of about this size: a beginning, a part that is repeated, and an end that does not match."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    chars = _chars(tree)
    samples = set(filter(None, (_sample(each) for each in _parts(tree))))
    beginnings = {"", *(_sample(tree[:end]) for end in _ends(tree)[:-1])}
    special = {char for char in chars if not char.isalnum()} | {min(filter(str.isalnum, chars), default="a")}
    pairs = {one + other for one, other in product(special, repeat=2)}
    for repeated in sorted(samples | chars | pairs):
        for beginning in sorted(beginnings) if repeated in samples | chars else ("", max(beginnings, key=len)):
            for end in ("", "\x01"):
                text = beginning + repeated * (size // len(repeated)) + end
                yield text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text


def _parts(tree: Any) -> Iterator[Any]:
    """Yield each sequence of the parse tree, and its parts from the beginning and to the end."""
    ends = _ends(tree)
    for end in ends:
        yield tree[:end]
        yield tree[end:]
    for _, argument in tree:
        for inner in _inside(argument):
            yield from _parts(inner)


def _ends(tree: Any) -> list[int]:
    """Return where the parts of a sequence end. Literal characters that follow each other are one part."""
    literal = [code is ops.LITERAL for code, _ in tree]
    return [end for end in range(1, len(tree) + 1) if end == len(tree) or not (literal[end - 1] and literal[end])]


def _inside(argument: Any) -> Iterator[Any]:
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, list | tuple):
        yield from chain.from_iterable(map(_inside, argument))


CANDIDATES: Final = string.digits + string.ascii_letters + " \n\t" + string.punctuation + "\x01\u2028\u00b5"


def _chars(tree: Any) -> set[str]:
    """Return one or two characters that each part of the pattern accepts, or refuses."""
    found = {"\x01"}
    for code, argument in tree:
        if code in (ops.LITERAL, ops.NOT_LITERAL):
            found.add(chr(argument))
        if code is ops.IN:
            found.update(_members(argument)[:2])
        for inner in _inside(argument):
            found |= _chars(inner)
    return found


def _members(items: Any) -> list[str]:
    """Return the candidates that a set such as `[^a-z]` accepts."""
    accepts = compiler.compile(parser.SubPattern(parser.State(), [(ops.IN, items)]))
    return [char for char in CANDIDATES if accepts.fullmatch(char)]


def _sample(tree: Any) -> str:
    """Return a text that this part of a pattern accepts. Each repeat is done once at least."""
    text = ""
    for code, argument in tree:
        match code:
            case ops.LITERAL:
                text += chr(argument)
            case ops.NOT_LITERAL:
                text += next(char for char in CANDIDATES if ord(char) != argument)
            case ops.ANY:
                text += "a"
            case ops.IN:
                text += next(iter(_members(argument)), "")
            case ops.MAX_REPEAT | ops.MIN_REPEAT | ops.POSSESSIVE_REPEAT:
                text += _sample(argument[2]) * max(argument[0], 1)
            case ops.SUBPATTERN:
                text += _sample(argument[3])
            case ops.ATOMIC_GROUP:
                text += _sample(argument)
            case ops.BRANCH:
                text += _sample(argument[1][0])
    return text


SIZES = (256, 4096)
"""The numbers of characters of a text. For 4096, a linear expression needs less than 0.1 ms, and a quadratic one 50 ms.
The short text finds the worst expressions soon.
"""

MOST_S = 0.01
USES = list(uses())


def slowest(use: Use) -> str:
    """Return the beginning of the first text for which the expression is slow, or ""."""
    for text in chain.from_iterable(hard_texts(use.pattern, size) for size in SIZES):
        if not any(_is_quick(use, text) for _ in range(3)):
            return repr(text[:40])
    return ""


def _is_quick(use: Use, text: Any) -> bool:
    call = getattr(use.pattern, use.method)
    arguments = ("", text) if use.method in ("sub", "subn") else (text,)
    # The iterator of `finditer` does its work when it is read.
    run = (lambda: deque(call(text), 0)) if use.method == "finditer" else (lambda: call(*arguments))
    try:
        return seconds(run, limit_s=5 * MOST_S) <= MOST_S
    except TooSlow:
        return False


@pytest.mark.parametrize("use", USES, ids=[f"{each.place} {each.method}" for each in USES])
def test_each_pattern_is_quick_for_the_texts_that_are_hard_for_it(use: Use) -> None:
    assert slowest(use) == ""


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"""(?:map\[|&?\w*[\w.]*\{\s*(?:\\?["']|\w+:)|\[\s*\{).*(?:[\]}]|$)""", "search"),
        (r"(a+)+b", "fullmatch"),
        (r"(?:a|a)*b", "fullmatch"),
        (r"\s+$", "search"),
        (r"[0-9]+[a-z]", "findall"),
        (r'"[^"\\]*(?:\\.[^"\\]*)*"', "finditer"),
    ],
)
def test_a_slow_pattern_is_found(pattern: str, method: str) -> None:
    assert slowest(Use(re.compile(pattern), method, "")) != ""
