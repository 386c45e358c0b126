"""Log lines: JSON where a machine reads them, columns and colours where a person does.

A line is one JSON object: `ts` (UTC), `level`, `msg`, what the context adds (controller, namespace, name,
reconcile_id), and the line's own data. An exception is one field, however long. What other libraries say through the
standard library's logging comes out the same way, with their `logger`, from WARNING on: below that, some of them tell
whole bodies and headers.

Writing a line never raises. What cannot be encoded is written as text, and what a closed pipe does not take is lost.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMATS = ("auto", "json", "console")


def configure(level: str, format: str, *, stream: TextIO | None = None) -> None:
    """Set up all logging of the process, to standard output unless told otherwise.

    `level` is one of LEVELS. `format` is one of FORMATS; "auto" is console on a terminal and JSON elsewhere.
    """
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
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: lines,
        # Not cached, which costs two microseconds a line, so that loggers made at import follow a later change.
        cache_logger_on_first_use=False,
    )
    _take_in_standard_logging(max(LEVELS[level], logging.WARNING), describe, render, lines)


def _take_in_standard_logging(
    level: int, describe: Sequence[Processor], render: Sequence[Processor], lines: _Lines
) -> None:
    handler = _LinesHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*describe, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class _Lines:
    """Writes whole lines to a stream, at once; what structlog calls a logger, with a method for each level."""

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
            pass  # the reader has gone, and there is nowhere left to say so

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
    """Render a line, with what every line has in front."""
    line = {"ts": event.pop("ts", ""), "level": event.pop("level", ""), "msg": event.pop("event", "")}
    line = {**event, **line} if event.keys() & line.keys() else {**line, **event}
    try:
        return _encode(line).decode()
    except Exception:
        return _encode({_text(key): _plain(value) for key, value in line.items()}).decode()


def _console(*, colours: bool) -> tuple[Processor]:
    renderer = structlog.dev.ConsoleRenderer(
        colors=colours,
        timestamp_key="ts",
        # The default one shows the local variables of each frame, and those may be anything.
        exception_formatter=structlog.dev.plain_traceback,
    )

    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        try:
            return renderer(logger, method, dict(event))
        except Exception:
            return renderer(logger, method, {_text(key): _plain(value) for key, value in event.items()})

    return (render,)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, bool | float) else _text(value)


def _text(value: object) -> str:
    """A value as text that can be encoded, whatever its own methods do."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:
        text = f"<{type(value).__name__} without a repr>"
    return text.encode("utf-8", "replace").decode()


_encode = msgspec.json.Encoder(enc_hook=_text).encode
