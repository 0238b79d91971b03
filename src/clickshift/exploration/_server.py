"""Server of the page: on this machine only, read-only, and only for pages that it sent itself.

A request is answered if its Host header names this server, so that a foreign site whose name resolves to 127.0.0.1 (DNS
rebinding) gets nothing. There is no CORS header: other origins cannot read answers. Nothing is read from the disk, and
every parameter is a number of a query, numbers of its documents, or a text to search for.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from typing_extensions import override

from clickshift.data.sessions import Rankings
from clickshift.data.vocabulary import Vocabulary
from clickshift.display.result import plain
from clickshift.errors import SpecError
from clickshift.exploration._page import content_security_policy, explore_page
from clickshift.models.forecast import predict

if TYPE_CHECKING:
    from clickshift.exploration.explore import Exploration

__all__ = ["HOST", "PageServer"]

HOST = "127.0.0.1"
_MAX_TARGET, _MAX_TEXT, _MAX_MATCHES, _MAX_FIELDS = 8192, 200, 200, 8
_SECONDS = 30.0
"""Time limit for a request to arrive and for its answer to be read."""
_log = logging.getLogger("clickshift")
_HEADERS = {
    "Content-Security-Policy": f"{content_security_policy(served=True)}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class _Refusal(Exception):
    """A request that is not answered: status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class PageServer(ThreadingHTTPServer):
    """HTTP server of an exploration, on 127.0.0.1.

    Parameters
    ----------
    exploration
        The result to show.
    port
        Port; 0 chooses a free one.

    Raises
    ------
    SpecError
        If the port cannot be used ("port-in-use").
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = os.name == "posix"  # elsewhere it would let another program take the port
    request_queue_size = 32

    def __init__(self, exploration: Exploration, port: int = 0) -> None:
        self.exploration = exploration
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SpecError(
                f"port {port} of {HOST} cannot be used ({reason}). Choose another one, or 0 for any free port.",
                code="port-in-use",
                port=port,
            ) from None

    @override
    def server_bind(self) -> None:
        """Bind without asking for the name of this machine, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, int(self.server_address[1])

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave out connections that broke; everything else is answered with 500 before."""
        _log.debug("explore: a connection ended early")

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self.server_port}/"

    @cached_property
    def page(self) -> bytes:
        """The page."""
        return explore_page(self.exploration, served=True)

    def answer(self, target: str) -> tuple[str, bytes]:
        """Answer a request.

        Parameters
        ----------
        target
            Path and query string.

        Returns
        -------
        tuple of str and bytes
            Content type and content.
        """
        if len(target) > _MAX_TARGET:
            raise _Refusal(414, "the address is too long")
        parts = urlsplit(target)
        if parts.scheme or parts.netloc or not target.startswith("/") or target.startswith("//"):
            raise _Refusal(400, "the address must be a path")
        if parts.path == "/":
            return "text/html; charset=utf-8", self.page
        question = _QUESTIONS.get(parts.path)
        if question is None:
            raise _Refusal(404, "there is no such page")
        names, work = question
        found = work(self.exploration, _fields(parts.query, names))
        content = json.dumps(plain(found), allow_nan=False, ensure_ascii=True, separators=(",", ":"))
        return "application/json; charset=utf-8", content.encode()


def _fields(text: str, names: frozenset[str]) -> dict[str, str]:
    """Parse a query string that has exactly these fields, once each."""
    try:
        parsed = parse_qs(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise _Refusal(400, "the query string cannot be read") from None
    if parsed.keys() != names or any(len(values) != 1 for values in parsed.values()):
        raise _Refusal(400, f"the fields must be {' and '.join(sorted(names))}, once each")
    return {name: values[0] for name, values in parsed.items()}


def _number(text: str, most: int, name: str) -> int:
    """Parse a number from 0 to `most`."""
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) > most:
        raise _Refusal(400, f"{name} must be a number from 0 to {most}")
    return int(text)


def _find_queries(exploration: Exploration, fields: Mapping[str, str]) -> dict[str, Any]:
    """Search for queries by a part of their id."""
    if len(fields["text"]) > _MAX_TEXT:
        raise _Refusal(400, f"the text must have {_MAX_TEXT} characters or fewer")
    limit = _number(fields["limit"], _MAX_MATCHES, "limit")
    index = exploration.explored.index
    numbers, total = index.search(fields["text"], limit)
    ids = index.sessions.vocabulary.query_ids
    return {
        "queries": [{"number": int(q), "query": str(ids[q]), "sessions": int(index.frequency[q])} for q in numbers],
        "total": total,
    }


def _known_query(exploration: Exploration, text: str) -> int:
    """Parse the number of a query that was shown."""
    index = exploration.explored.index
    number = _number(text, len(index.frequency) - 1, "query")
    if not index.frequency[number]:
        raise _Refusal(404, "the log has no sessions of this query")
    return number


def _show_query(exploration: Exploration, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts of a query."""
    return exploration.explored.query(_known_query(exploration, fields["number"]))


def _predict(exploration: Exploration, fields: Mapping[str, str]) -> dict[str, Any]:
    """Predict the clicks on a list of documents of a query."""
    query = _known_query(exploration, fields["query"])
    sessions = exploration.explored.index.sessions
    vocabulary = sessions.vocabulary
    first, end = (int(bound) for bound in vocabulary.query_offsets[query : query + 2])
    texts = fields["pairs"].split(",")
    if len(texts) > sessions.n_ranks:
        raise _Refusal(400, f"a list must have {sessions.n_ranks} documents or fewer, as in the log")
    pairs = [_number(text, vocabulary.n_pairs - 1, "a document") for text in texts]
    if len(set(pairs)) < len(pairs) or not all(first <= pair < end for pair in pairs):
        raise _Refusal(400, "a list must have different documents of the query")
    documents = vocabulary.doc_ids[vocabulary.pair_doc[pairs]]
    own, number, pair = Vocabulary.of(vocabulary.query_ids[[query] * len(pairs)], documents)
    forecast = predict(exploration.model, Rankings(own, number[:1], pair[None]))
    (low,), (high,) = forecast.intervals()
    (total_low,), (total_high,) = forecast.total_intervals()
    return {
        "click_prob": forecast.click_prob[0],
        "low": low,
        "high": high,
        "expected_clicks": float(forecast.expected_clicks[0]),
        "expected_low": float(total_low),
        "expected_high": float(total_high),
    }


_QUESTIONS: dict[str, tuple[frozenset[str], Callable[[Exploration, Mapping[str, str]], dict[str, Any]]]] = {
    "/api/queries": (frozenset({"text", "limit"}), _find_queries),
    "/api/query": (frozenset({"number"}), _show_query),
    "/api/predict": (frozenset({"query", "pairs"}), _predict),
}
"""Fields and functions of the questions that the page asks."""


class _Handler(BaseHTTPRequestHandler):
    """One connection: checks the request, and sends the answer."""

    server: PageServer
    server_version, sys_version = "clickshift", ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        """Answer a question of the page."""
        try:
            self._check_sender()
            kind, content = self.server.answer(self.path)
            status = 200
        except _Refusal as refusal:
            status, kind, content = refusal.status, "application/json", _error(refusal.reason)
        except Exception as error:  # the page says so, and the server goes on
            _log.debug("explore: %s", error, exc_info=True)
            status, kind, content = 500, "application/json", _error("internal error")
        self._send(status, kind, content)

    def _refuse_method(self) -> None:
        """Refuse a method that could change something."""
        self._send(405, "application/json", _error("the server only answers GET"), {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def _check_sender(self) -> None:
        """Refuse a request that was not sent to this server by name, or that a page of another origin sent."""
        names = {f"{name}:{self.server.server_port}" for name in (HOST, "localhost")}
        if self.server.server_port == 80:
            names |= {HOST, "localhost"}
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].lower() not in names:
            raise _Refusal(403, "the Host header must name this server")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower() not in {f"http://{name}" for name in names}:
            raise _Refusal(403, "the request comes from a page of another origin")
        if self.path.startswith("/api/") and self.headers.get("Sec-Fetch-Site", "same-origin") not in {
            "same-origin",
            "none",
        }:
            raise _Refusal(403, "the request comes from a page of another site")

    def _send(self, status: int, kind: str, content: bytes, more: Mapping[str, str] | None = None) -> None:
        """Send an answer; the connection ends with it."""
        self.close_connection = True
        self.send_response(status)
        for name, value in {
            **_HEADERS,
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            **(more or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    @override
    def log_message(self, format: str, *arguments: Any) -> None:
        """Write a line to the log of `clickshift --verbose`."""
        _log.debug("explore: %s", format % arguments)


def _error(reason: str) -> bytes:
    """Return a reason as JSON."""
    return json.dumps({"error": reason}).encode()
