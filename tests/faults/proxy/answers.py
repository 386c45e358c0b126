"""Answers that the fault proxy makes up, and the ways to damage an answer of the server. All functions are pure."""

import json
from http import HTTPStatus
from typing import Any

from tests.faults.proxy.actions import Corruption, FailWatch, Refuse
from tests.faults.proxy.wire import Answer, Head, chunk

REASONS = {410: "Expired", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
EXPIRED = FailWatch(410, message="too old resource version: 1 (2)")
NOT_JSON = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


def status_object(refusal: FailWatch) -> dict[str, Any]:
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
        "reason": REASONS[refusal.status],
        **({"details": details} if details else {}),
        "code": refusal.status,
    }


def refusal_answer(refusal: Refuse) -> Answer:
    body = json.dumps(status_object(FailWatch(refusal.status))).encode()
    headers = {"Content-Type": "application/json", "Retry-After": refusal.retry_after, "Content-Length": str(len(body))}
    named = tuple((name, text) for name, text in headers.items() if text)
    return Answer(Head(refusal.status, HTTPStatus(refusal.status).phrase, named), body)


def error_event(failure: FailWatch) -> bytes:
    """Return the line of a watch that ends the watch with an error."""
    return json.dumps({"type": "ERROR", "object": status_object(failure)}).encode() + b"\n"


def cut(answer: Answer, method: str) -> bytes:
    """Return the start of an answer: the headers and the first half of the body."""
    end = len(answer.body) // 2
    if answer.head.length is not None or method == "HEAD":
        return answer.head.encode(chunked=False) + answer.body[:end]
    framed = chunk(answer.body)
    start = framed.index(b"\r\n") + 2
    return answer.head.encode(chunked=True) + framed[: start + end]


def corrupted_event(line: bytes, how: Corruption) -> bytes:
    """Return the corrupted bytes of one event, with their framing. After them, the proxy closes the connection."""
    return b"not a number\r\n" + line if how == "chunk size" else chunk(NOT_JSON + b"\n")
