"""Configures the log lines of the process: JSON for machines, or columns and colours for people.

The lines of libraries have the same form and the field `logger`, from WARNING on: some log whole requests. Characters
that control a terminal or turn or break a line are escaped. Writing never raises an exception: what cannot be encoded
is written as text, and a line for a closed output is lost.
"""

import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
FORMATS = ("auto", "json", "console")


def configure(level: str, format: str, *, stream: TextIO | None = None) -> None:
    """Write to `stream`, or standard output. The format "auto" means "console" on a terminal and "json" otherwise."""
    stream = stream or sys.stdout
    on_terminal = stream.isatty()
    render: tuple[Processor, ...] = (structlog.processors.format_exc_info, _to_json)
    if format == "console" or (format == "auto" and on_terminal):
        render = _console(colours=on_terminal and not os.environ.get("NO_COLOR"))
    lines = _Lines(stream)
    describe: tuple[Processor, ...] = (
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    )
    structlog.configure(
        processors=[*describe, *render],
        logger_factory=lambda *_: lines,
        # Loggers are created at import, before `configure` is called. Without the cache, they use the configuration of
        # the last call. Each line then takes about two microseconds more.
        cache_logger_on_first_use=False,
    )
    _redirect_standard_logging(describe, render, lines)
    set_level(level)


def level() -> str:
    effective = structlog.get_logger().get_effective_level()
    return next(name for name, number in LEVELS.items() if number == effective)


def set_level(level: str) -> None:
    """Change the level of all loggers. The libraries that use `logging` write no line below WARNING."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]))
    logging.getLogger().setLevel(max(LEVELS[level], logging.WARNING))


def _redirect_standard_logging(describe: Sequence[Processor], render: Sequence[Processor], lines: "_Lines") -> None:
    """Write the records of the `logging` module to `lines`, in the same form as the lines of structlog."""
    handler = _LinesHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*describe, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    logging.getLogger().handlers[:] = [handler]


class _Lines:
    """Writes and flushes one line. structlog calls the method with the name of the line's level."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        try:
            try:
                self._stream.write(line + "\n")
            except UnicodeEncodeError:
                self._stream.write(line.encode("ascii", "replace").decode() + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # the stream is closed, and there is no other place to report the error

    debug = info = warning = warn = error = critical = fatal = exception = log = msg


class _LinesHandler(logging.Handler):
    def __init__(self, lines: _Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.msg(self.format(record))
        except Exception:
            self.handleError(record)


def _to_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """Return a line as JSON text. The fields that every line has (`ts`, `level`, `msg`) are the first fields."""
    line = {"ts": event.pop("ts", ""), "level": event.pop("level", ""), "msg": event.pop("event", "")}
    line = {**event, **line} if event.keys() & line.keys() else {**line, **event}
    try:
        return _visible(_encode(line).decode())
    except Exception:
        return _visible(_encode({_text(key): _plain(value) for key, value in line.items()}).decode())


def _console(*, colours: bool) -> tuple[Processor, ...]:
    renderer = structlog.dev.ConsoleRenderer(
        colors=colours,
        timestamp_key="ts",
        # The default formatter shows the local variables of each frame. These variables may contain secrets.
        exception_formatter=structlog.dev.plain_traceback,
    )

    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        lines = _text(event.pop("exception", "")).split("\n")
        event = {key: _visible(value) if isinstance(value, str) else value for key, value in event.items()}
        event |= {"exception": "\n".join(map(_visible, lines))} if any(lines) else {}
        try:
            return renderer(logger, method, dict(event))
        except Exception:
            return renderer(logger, method, {_text(key): _plain(value) for key, value in event.items()})

    return structlog.processors.format_exc_info, render


def _visible(text: str) -> str:
    """Return the text with JSON's escapes for control characters, for U+2028 and U+2029, and for bidi characters."""
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | float) else _text(value)


def _text(value: object) -> str:
    """Return the value as text that UTF-8 can encode. If `__repr__` of the value raises, the text names the type."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = f"<{type(value).__name__} without a repr>"
    return text.encode("utf-8", "replace").decode()


_encode = msgspec.json.Encoder(enc_hook=_text).encode
