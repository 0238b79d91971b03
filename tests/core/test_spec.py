from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clickshift.core.spec import key, label, parse
from clickshift.errors import ClickshiftError, SpecError
from clickshift.policies import POLICIES
from clickshift.simulation.users import USERS

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
    ("text", "message"),
    [
        ("Nobody", "'Nobody' is not known. Choose one of: Uniform"),
        ("Oracle(", "is not readable"),
        ("", "is not readable"),
        ("Oracle(colour=3)", "Its options are: scale"),
        ("Oracle(**{})", r"\*\* cannot be used"),
        ("__import__('os').system('true')", "neither a registered name nor a literal"),
        ("Oracle(scale=open('x'))", "'open' is not known"),
        ("Oracle(scale=[x for x in 'ab'])", "neither a registered name nor a literal"),
        ("PlackettLuce(Oracle, temperature=-1.0)", "temperature"),
    ],
)
def test_bad_texts_are_explained(text: str, message: str) -> None:
    with pytest.raises(ClickshiftError, match=message):
        parse(text, POLICIES)


@given(st.text())
def test_no_text_runs_anything_or_fails_otherwise(text: str) -> None:
    with contextlib.suppress(SpecError):
        parse(text, USERS)
