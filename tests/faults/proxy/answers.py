"""Answers that the fault proxy makes up, and the ways to damage an answer of the server. All functions are pure."""

import gzip
import json
from collections.abc import Callable
from typing import Any

from tests.faults.proxy.actions import Corruption, FailWatch, Refuse
from tests.faults.proxy.wire import Answer, chunk, head

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
EXPIRED = FailWatch(410, message="too old resource version: 1 (2)")
LARGE = 4 * 1024 * 1024
NOT_JSON = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
WRONG_JSON = b'["an array", {"where": "an object belongs"}, 1, null]'


def status_object(refusal: FailWatch) -> dict[str, Any]:
    """Return the Status object that describes a refusal."""
    details: dict[str, Any] = {}
    if refusal.cause:
        details["causes"] = [{"reason": refusal.cause, "message": refusal.message}]
    if refusal.retry_after_seconds:
        details["retryAfterSeconds"] = refusal.retry_after_seconds
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason or REASONS.get(refusal.status, "Unknown"),
        **({"details": details} if details else {}),
        "code": refusal.status,
    }


def refusal_answer(refusal: Refuse) -> Answer:
    body = json.dumps(status_object(FailWatch(refusal.status, refusal.reason, refusal.message))).encode()
    named = head(refusal.status, content_type="application/json", retry_after=refusal.retry_after)
    return Answer(named.with_header("Content-Length", str(len(body))), body)


def error_event(failure: FailWatch) -> bytes:
    """Return the line of a watch that ends the watch with an error."""
    return json.dumps({"type": "ERROR", "object": status_object(failure)}).encode() + b"\n"


def compressed(answer: Answer) -> Answer:
    """Compress the body with gzip, unless the server has done so."""
    if answer.head.header("content-encoding"):
        return answer
    body = gzip.compress(answer.body)
    return Answer(
        answer.head.with_header("Content-Encoding", "gzip").with_header("Content-Length", str(len(body))), body
    )


def cut(answer: Answer, at_byte: int | None, method: str) -> bytes:
    """Return the start of an answer: the headers and the first bytes of the body.

    `at_byte` is the number of bytes of the body. If it is None, use half of the body.
    """
    end = len(answer.body) // 2 if at_byte is None else min(at_byte, len(answer.body))
    if answer.head.length is not None or method == "HEAD":
        return answer.head.encode(chunked=False) + answer.body[:end]
    framed = chunk(answer.body)
    start = framed.index(b"\r\n") + 2
    return answer.head.encode(chunked=True) + framed[: start + end]


def corrupted(answer: Answer, how: Corruption, method: str) -> bytes:
    """Return the bytes of a corrupted answer. After them, the proxy closes the connection."""
    named, body = answer.head.with_header("Content-Encoding", ""), answer.body
    if answer.head.header("content-encoding") == "gzip":
        body = gzip.decompress(body)
    match how:
        case "not JSON":
            body = NOT_JSON
        case "half JSON":
            body = body[: len(body) // 2]
        case "wrong JSON":
            body = WRONG_JSON
        case "content type":
            named, body = named.with_header("Content-Type", "text/html"), NOT_JSON
        case "chunk size":
            return named.with_header("Content-Length", "").encode(chunked=True) + b"not a number\r\n" + body
        case "content length":
            return named.with_header("Content-Length", str(len(body) + 1000)).encode(chunked=False) + body
    return Answer(named.with_header("Content-Length", str(len(body))), body).encode(method)


def corrupted_event(line: bytes, how: Corruption, encode: Callable[[bytes], bytes]) -> bytes:
    """Return the corrupted bytes of one event, with their framing. After them, the proxy closes the connection.

    `encode` compresses data, if the watch is compressed.
    """
    match how:
        case "half JSON":
            return chunk(encode(line[: len(line) // 2] + b"\n"))
        case "wrong JSON":
            return chunk(encode(b'{"type": "MODIFIED", "object": ' + WRONG_JSON + b"}\n"))
        case "chunk size":
            return b"not a number\r\n" + encode(line)
        case "content length":
            data = encode(line)
            return b"%x\r\n" % (len(data) + 1000) + data
        case _:
            return chunk(encode(NOT_JSON + b"\n"))


def enlarged(line: bytes) -> bytes:
    """Add an unknown field to the object of an event."""
    before, found, after = line.partition(b'"object":{')
    padding = b'"padding":"%b",' % (b"x" * LARGE)
    return before + found + padding + after if found else line
