from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.core.spec import key, label, parse
from clickshift.errors import ClickshiftError, SpecError
from clickshift.policies import POLICIES
from clickshift.simulation.users import USERS
from tests.codes import raises_code

TEXTS = [
    "Oracle",
    "PlackettLuce(Oracle, temperature=0.1)",
    "PlackettLuce(NoisyOracle(sd=0.5, scale='label'), scores='log')",
    "Reversed(Feature(number=3))",
    "Placed(Oracle, (1.0, 0.5))",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_label_is_the_text_that_made_it(text: str) -> None:
    assert label(parse(text, POLICIES)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_a_key_spells_everything_out_and_makes_the_same_object(text: str) -> None:
    made = parse(text, POLICIES)
    assert parse(key(made), POLICIES) == made
    assert "temperature=" in key(made) or "PlackettLuce" not in text


@pytest.mark.parametrize("registry", [POLICIES, USERS])
def test_every_registered_name_exists(registry: dict[str, str]) -> None:
    from clickshift.core.spec import resolve

    for name in registry:
        assert resolve(name, registry).__name__ == name


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("Nobody", "unknown-name", {"value": "Nobody", "known": list(POLICIES)}),
        ("Oracle(", "unreadable-spec", {"value": "Oracle("}),
        ("", "unreadable-spec", {"value": ""}),
        *((text, "unreadable-spec", {"value": text}) for text in ("-0\r", "1,1", "{}", "'Oracle'", "Oracle, Oracle")),
        ("+".join("x" * 600), "not-a-literal", {"value": "+".join("x" * 600)}),
        ("Oracle(colour=3)", "bad-option", {"value": "Oracle(colour=3)", "known": ["scale"]}),
        ("Oracle(**{})", "bad-option", {"value": "Oracle(**{})"}),
        ("__import__('os').system('true')", "not-a-literal", {"value": "__import__('os').system('true')"}),
        ("Oracle(scale=open('x'))", "unknown-name", {"value": "open"}),
        ("Oracle(scale=[x for x in 'ab'])", "not-a-literal", {"value": "[x for x in 'ab']"}),
        ("PlackettLuce(Oracle, temperature=-1.0)", "bad-option", {"option": "temperature", "value": -1.0}),
    ],
)
def test_bad_texts_are_explained(text: str, code: str, facts: dict[str, Any]) -> None:
    with raises_code(code, ClickshiftError, **facts):
        parse(text, POLICIES)


@given(st.text())
def test_no_text_runs_anything_or_fails_otherwise(text: str) -> None:
    with contextlib.suppress(SpecError):
        parse(text, USERS)
