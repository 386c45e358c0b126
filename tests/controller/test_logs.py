import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from controller.logs import configure


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.fixture
def output(stream: Stream) -> Stream:
    """A stream that gets the lines from the level info on, as JSON."""
    configure("info", "json", stream=stream)
    return stream


log = structlog.get_logger()


def fail(message: str) -> None:
    raise ValueError(message)


def fail_with_a_secret(token: str) -> None:
    raise ValueError(len(token))


def test_a_line_is_one_json_object_that_starts_with_time_level_and_message(output: Stream):
    log.info("scaled in", deleted=3, why="surplus")
    [line] = output.lines()
    assert list(line) == ["ts", "level", "msg", "deleted", "why"]
    assert {**line, "ts": ""} == {"ts": "", "level": "info", "msg": "scaled in", "deleted": 3, "why": "surplus"}
    written = datetime.fromisoformat(line["ts"])
    assert written.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - written) < timedelta(minutes=1)


def test_only_the_lines_of_a_reconcile_have_its_context(output: Stream):
    with bound_contextvars(controller="replicaset", namespace="shop", name="web", reconcile_id="1f"):
        log.info("reconciled")
    log.info("idle")
    inside, outside = output.lines()
    assert [inside[key] for key in ("controller", "namespace", "name", "reconcile_id")] == [
        "replicaset",
        "shop",
        "web",
        "1f",
    ]
    assert "name" not in outside


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_lines_below_the_level_are_not_written(level: str, written: list[str], stream: Stream):
    configure(level, "json", stream=stream)
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("something")
    assert [line["level"] for line in stream.lines()] == written


@pytest.mark.parametrize("logger", [log, logging.getLogger("asyncio")], ids=["ours", "of a library"])
def test_an_exception_is_one_field_of_one_line(logger: Any, output: Stream):
    try:
        fail("no such phase")
    except ValueError:
        logger.exception("reconcile failed")
    [line] = output.lines()
    assert (line["level"], line["msg"]) == ("error", "reconcile failed")
    assert line["exception"].startswith("Traceback (most recent call last):")
    assert line["exception"].endswith("ValueError: no such phase")


def test_an_exception_group_shows_each_exception(output: Stream):
    group = ExceptionGroup("services failed", [ValueError("one"), OSError("two")])
    log.error("stopping", exc_info=group)
    [line] = output.lines()
    assert "ValueError: one" in line["exception"]
    assert "OSError: two" in line["exception"]


class NoRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def circular() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize(
    "value",
    [
        object(),
        NoRepr(),
        {("a", 1): 2},
        {1, 2},
        b"\xff",
        "a lone surrogate \ud800",
        float("nan"),
        10**40,
        ValueError("as a value"),
        circular(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_line_is_written_for_any_value(value: object, format: str, stream: Stream):
    configure("info", format, stream=stream)
    log.info("odd", value=value, other=1)
    assert "odd" in stream.getvalue()
    assert "other" in stream.getvalue()
    assert stream.getvalue().encode()
    if format == "json":
        [line] = stream.lines()
        assert "value" in line


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize(
    "sign", [*"\r\x1b\x7f\x9b\u0085\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069"], ids=ascii
)
def test_no_text_changes_how_a_terminal_shows_a_line(sign: str, format: str, stream: Stream):
    """C0 and C1 control characters begin escape sequences. Others turn the text around, or break the line."""
    configure("info", format, stream=stream)
    text = f"a{sign}]2;evil"
    log.info(text, why=text, name=text.replace(" ", ""), each=[text])
    logging.getLogger("library").warning(text)
    try:
        fail(text)
    except ValueError:
        log.exception("failed")
    assert sign not in stream.getvalue()
    assert f"a\\u{ord(sign):04x}]2;evil" in stream.getvalue() or (format, sign) == ("json", "\r")
    if format == "json":
        assert [each["msg"] for each in stream.lines()] == [text, text, "failed"]
        assert stream.lines()[0]["why"] == text


def test_a_message_begins_no_new_line_on_the_console(stream: Stream):
    configure("info", "console", stream=stream)
    log.info("all is well\n2026-01-01 [error] forged", why="a\nb")
    assert len(stream.getvalue().splitlines()) == 1


def test_data_cannot_replace_the_fields_of_every_line(output: Stream):
    log.info("what happened", msg="something else", ts="never")
    [line] = output.lines()
    assert line["msg"] == "what happened"
    assert line["ts"] != "never"


def test_other_libraries_log_from_level_warning_in_the_same_form(stream: Stream):
    configure("debug", "json", stream=stream)
    library = logging.getLogger("aiohttp.client")
    library.debug("a secret")
    library.info("a secret")
    with bound_contextvars(name="web"):
        library.warning("connection to %s lost", "api")
    [line] = stream.lines()
    assert line["ts"]
    assert {**line, "ts": ""} == {
        "ts": "",
        "level": "warning",
        "msg": "connection to api lost",
        "name": "web",
        "logger": "aiohttp.client",
    }


def test_at_level_error_other_libraries_log_only_errors(stream: Stream):
    configure("error", "json", stream=stream)
    logging.getLogger("aiohttp").warning("small")
    logging.getLogger("aiohttp").error("large")
    assert [line["msg"] for line in stream.lines()] == ["large"]


@pytest.mark.parametrize(
    ("format", "terminal", "json_lines"),
    [("auto", True, False), ("auto", False, True), ("json", True, True), ("console", False, False)],
)
def test_the_automatic_format_depends_on_the_stream(format: str, terminal: bool, json_lines: bool):
    stream = Stream(terminal=terminal)
    configure("info", format, stream=stream)
    log.info("hello", count=3)
    assert stream.getvalue().startswith("{") == json_lines


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_are_used_only_on_terminals_without_no_color(
    terminal: bool, no_color: str, coloured: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NO_COLOR", no_color)
    stream = Stream(terminal=terminal)
    configure("info", "console", stream=stream)
    log.info("hello", count=3)
    assert ("\x1b[" in stream.getvalue()) == coloured


def test_an_exception_on_the_console_shows_no_local_variables():
    stream = Stream(terminal=True)
    configure("info", "console", stream=stream)
    try:
        fail_with_a_secret("very" + "secret")
    except ValueError:
        log.exception("failed")
    assert "ValueError" in stream.getvalue()
    assert "verysecret" not in stream.getvalue()


class BrokenPipe(Stream):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_logging_to_a_closed_pipe_does_not_raise(stream: Stream):
    configure("info", "json", stream=BrokenPipe())
    log.info("into the void")
    logging.getLogger("aiohttp").warning("into the void")
    configure("info", "json", stream=stream)
    stream.close()
    log.info("into the void")


def test_an_ascii_stream_gets_every_line():
    raw = io.BytesIO()
    configure("info", "json", stream=io.TextIOWrapper(raw, encoding="ascii"))
    log.info("grün", who="🙂")
    line = json.loads(raw.getvalue())
    assert (line["msg"], line["who"]) == ("gr?n", "?")


def test_an_existing_logger_follows_a_later_configuration(stream: Stream):
    configure("error", "json", stream=Stream())
    log.info("too early")
    configure("info", "json", stream=stream)
    log.info("in time")
    assert [line["msg"] for line in stream.lines()] == ["in time"]
