"""The server answers the page's questions on this machine, and nothing else."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import clickshift as cs
from clickshift.exploration import Exploration
from clickshift.exploration._server import HOST, PageServer
from tests.codes import raises_code
from tests.exploration.conftest import running


@pytest.fixture(scope="module")
def server(exploration: Exploration) -> Iterator[PageServer]:
    with running(exploration) as started:
        yield started


class Answer:
    """Status, headers and content of an answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.content = response.status, dict(response.getheaders()), response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.content)


def ask(server: PageServer, target: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
    connection = http.client.HTTPConnection(HOST, server.server_port, timeout=10)
    try:
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": f"{HOST}:{server.server_port}"} | (headers or {})).items():
            if value:
                connection.putheader(name, value)
        connection.endheaders()
        return Answer(connection.getresponse())
    finally:
        connection.close()


def test_it_listens_on_this_machine_only(server: PageServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_the_page_is_served_by_name_with_its_policy(server: PageServer, name: str) -> None:
    answer = ask(server, "/", headers={"Host": f"{name}:{server.server_port}"})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert "connect-src 'self'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not [header for header in answer.headers if header.lower().startswith("access-control")]
    assert b'"served":true' in answer.content


@pytest.mark.parametrize(
    "host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""]
)
@pytest.mark.parametrize("target", ["/", "/api/query?number=0"])
def test_another_host_header_is_refused(server: PageServer, host: str, target: str) -> None:
    answer = ask(server, target, headers={"Host": host.format(port=server.server_port)})
    assert answer.status == 403
    assert b"documents" not in answer.content


def test_two_host_headers_are_refused(server: PageServer) -> None:
    with socket.create_connection((HOST, server.server_port), timeout=10) as raw:
        host = f"Host: {HOST}:{server.server_port}\r\n".encode()
        raw.sendall(b"GET / HTTP/1.0\r\n" + host + b"Host: evil.example\r\n\r\n")
        assert b" 403 " in raw.recv(100)


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_a_page_of_another_origin_is_refused(server: PageServer, headers: dict[str, str]) -> None:
    assert ask(server, "/api/query?number=0", headers=headers).status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_only_get_is_answered(server: PageServer, method: str) -> None:
    answer = ask(server, "/", method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/etc/passwd", 404),
        ("/../../etc/passwd", 404),
        ("/%2e%2e/etc/passwd", 404),
        ("/api/../api/query?number=0", 404),
        ("/api/query/?number=0", 404),
        ("//evil.example/", 404),
        ("http://evil.example/", 400),
        ("/api/query", 400),
        ("/api/query?number=", 400),
        ("/api/query?number=-1", 400),
        ("/api/query?number=0x1", 400),
        ("/api/query?number=1e2", 400),
        ("/api/query?number=%D9%A1", 400),  # a digit, but not of ASCII
        ("/api/query?number=99999999999999999999", 400),
        ("/api/query?number=1000", 400),
        ("/api/query?number=0&number=1", 400),
        ("/api/query?number=0&more=1", 400),
        ("/api/queries?text=a", 400),
        ("/api/queries?text=%FF&limit=1", 400),
        (f"/api/queries?text={'a' * 201}&limit=1", 400),
        ("/api/queries?text=a&limit=1000", 400),
        ("/api/predict?query=0&pairs=", 400),
        ("/api/predict?query=0&pairs=0,0", 400),
        ("/api/predict?query=0&pairs=0,100000", 400),
        ("/api/predict?query=1&pairs=0", 400),  # of another query
        ("/api/predict?query=0&pairs=0,1,2,3,4,5,6", 400),
        (f"/api/queries?limit=1&text={'%20' * 5000}", 414),
    ],
)
def test_other_requests_are_refused_with_a_reason(server: PageServer, target: str, status: int) -> None:
    answer = ask(server, target)
    assert answer.status == status
    assert len(answer.json["error"]) > 10
    assert "Traceback" not in answer.json["error"]


def test_a_failure_is_an_answer_without_details(server: PageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("clickshift.exploration._server.predict", fail)
    answer = ask(server, "/api/predict?query=0&pairs=0")
    assert (answer.status, answer.json) == (500, {"error": "internal error"})
    assert ask(server, "/").status == 200


def test_questions_are_answered_as_the_functions_do(server: PageServer, exploration: Exploration) -> None:
    found = ask(server, f"/api/queries?text={quote('1')}&limit=3").json
    numbers, total = exploration.explored.index.search("1", 3)
    assert [one["number"] for one in found["queries"]] == numbers.tolist()
    assert found["total"] == total
    number = found["queries"][0]["number"]
    assert ask(server, f"/api/query?number={number}").json == exploration.query(found["queries"][0]["query"])


def test_predictions_are_those_of_predict(server: PageServer, exploration: Exploration, simulated: cs.Sessions) -> None:
    facts = ask(server, "/api/query?number=3").json
    order = [document["pair"] for document in facts["documents"]][:6][::-1]
    answer = ask(server, f"/api/predict?query=3&pairs={','.join(map(str, order))}").json
    rankings = cs.Rankings(simulated.vocabulary, np.array([3]), np.array([order]))
    forecast = cs.predict(exploration.model, rankings)
    assert answer["click_prob"] == pytest.approx(forecast.click_prob[0], abs=1e-12)
    low, high = forecast.intervals()
    assert answer["low"] == pytest.approx(low[0], abs=1e-12)
    assert answer["high"] == pytest.approx(high[0], abs=1e-12)
    assert answer["expected_clicks"] == pytest.approx(forecast.expected_clicks[0])
    assert answer["expected_low"] == pytest.approx(forecast.total_intervals()[0][0])


def test_a_model_of_another_vocabulary_predicts(simulated: cs.Sessions, uneven: cs.Sessions) -> None:
    explored = cs.explore(simulated, cs.fit("PBM", uneven), sample=0)  # type: ignore[arg-type]
    with PageServer(explored) as server:
        _, content = server.answer("/api/predict?query=0&pairs=0,1")
    model: Any = explored.model
    assert json.loads(content)["click_prob"][1] == pytest.approx(
        float(model.click_prob(cs.Rankings(simulated.vocabulary, np.array([0]), np.array([[0, 1]])))[0, 1])
    )


def test_a_port_in_use_is_an_error(server: PageServer, exploration: Exploration) -> None:
    with raises_code("port-in-use", port=server.server_port):
        PageServer(exploration, server.server_port)
