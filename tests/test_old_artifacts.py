"""Artifacts of the release before the new layout load with equal values: their files are written out here by hand.

The headers are those of clickshift 0.1.0, when `MaximumLikelihood` was called `EM`. The values are those that the same
release computed from this log of four sessions: (7: 10, 20), (7: 20, 10), (7: 10, 20), (9: 30, 10).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import clickshift as cs
from clickshift.core.spec import parse
from clickshift.errors import FileError
from clickshift.experiments.experiment import open_run
from clickshift.experiments.policy_shift.protocol import VERSION
from clickshift.learners import LEARNERS
from clickshift.models.ubm import UBM
from clickshift.ranking.ranker import Ranker
from clickshift.ranking.storage import load_ranker
from tests.codes import raises_code
from tests.full_logs import content

VOCABULARY = {"fingerprint": "70cbc9a7096d9d6347f729c04bed7580", "query_ids": "integers", "doc_ids": "integers"}
IDS = {
    "vocabulary.query_ids": np.array([7, 9]),
    "vocabulary.doc_ids": np.array([10, 20, 30]),
    "vocabulary.pair_query": np.array([0, 0, 1, 1]),
    "vocabulary.pair_doc": np.array([0, 1, 0, 2]),
}
ATTRACTIVENESS = [0.6290514625892311, 0.24304995927086379, 0.7157431844953713, 0.7157431844953713, 0.5719794611242568]
EXAMINATION = [1.0, 0.9250368953032442, 0.817798605425148]


TAILS = np.zeros(512, np.uint32)  # two lists of two pairs, one per lane of 256
TAILS[[0, 256]] = 1
FITTED = [
    ("PBM", "examination", [1.0, 0.9499153624699276]),  # shrunk to equal click rates
    (
        "DBN",
        "attractiveness",
        [0.5795450340781744, 0.5669058424654436, 0.5811201832678413, 0.5811201832678413, 0.5769313851005197],
    ),
]
WEAK = pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")  # four sessions


def artifact(folder: Path, kind: str, arrays: dict[str, np.ndarray], **facts: Any) -> Path:
    """A folder as 0.1.0 wrote it: arrays, and a header with a digest of their file."""
    folder.mkdir()
    save_file(arrays, folder / f"{kind}.safetensors")
    content = hashlib.blake2b((folder / f"{kind}.safetensors").read_bytes(), digest_size=32).digest()
    digest = hashlib.blake2b(repr((1, ())).encode() + content, digest_size=16).hexdigest()
    (folder / f"{kind}.json").write_text(json.dumps({"format": 1, "clickshift": "0.1.0", **facts, "arrays": digest}))
    return folder


def evidence(learner: str, *errors: str) -> dict[str, Any]:
    facts = {"log_likelihood": -4.41143770292316, "iterations": 5, "converged": True, "held_out_loss": None}
    return {"learner": learner, **facts, "logit_error": list(errors)}


def evidence_arrays(prefix: str) -> dict[str, np.ndarray]:
    clicks, impressions = np.array([2.0, 0, 1, 1, 0]), np.array([3.0, 3, 1, 1, 0])
    return {f"{prefix}evidence.clicks": clicks, f"{prefix}evidence.impressions": impressions}


@WEAK
def test_a_model_of_the_learner_that_was_called_em(tmp_path: Path) -> None:
    arrays = {"attractiveness": np.array(ATTRACTIVENESS), "examination": np.array(EXAMINATION)}
    error = {"evidence.logit_error.examination": np.array([0.0, 3.75, 2.5])}
    header = {"name": "UBM", "fields": {"evidence": evidence("EM('UBM')", "examination")}}
    folder = artifact(
        tmp_path / "model", "model", IDS | arrays | evidence_arrays("") | error, vocabulary=VOCABULARY, model=header
    )
    model = cs.load_model(folder)
    assert model.evidence is not None
    assert isinstance(model, UBM)
    assert model.attractiveness.tolist() == ATTRACTIVENESS
    assert model.evidence.logit_error["examination"].tolist() == [0.0, 3.75, 2.5]
    assert parse(model.evidence.learner, LEARNERS) == cs.MaximumLikelihood("UBM")
    assert cs.fit(model.evidence.learner, model_log()).evidence is not None


def model_log() -> cs.Sessions:
    """The log of four sessions."""
    vocabulary, query, pair = cs.Vocabulary.of([7, 7, 7, 7, 7, 7, 9, 9], [10, 20, 20, 10, 10, 20, 30, 10])
    rankings = cs.Rankings(vocabulary, query[::2], pair.reshape(4, 2), np.ones((4, 2), bool))
    return cs.Sessions(rankings, np.array([[1, 0], [0, 1], [0, 0], [1, 1]], bool))


def test_a_mixture(tmp_path: Path) -> None:
    parts = [
        {"name": "rCTR", "fields": {}},
        {"name": "DBN", "fields": {"evidence": evidence("EM('DBN')"), "continuation": 0.75, "bottom_up": False}},
    ]
    arrays = {"weights": np.array([0.25, 0.75]), "components.0.ctr": np.array([0.5, 0.25])}
    arrays |= {f"components.1.{name}": np.full(5, 0.5) for name in ("attractiveness", "satisfaction")}
    header = {"name": "Mixture", "fields": {"evidence": evidence("MixtureEM(('PBM', 'DBN'))"), "components": parts}}
    arrays |= evidence_arrays("") | evidence_arrays("components.1.")
    model = cs.load_model(artifact(tmp_path / "m", "model", IDS | arrays, vocabulary=VOCABULARY, model=header))
    dbn = 0.5 * 0.75 * (0.5 * 0.5 + 0.5)  # examined if the walk goes on after no click, or an unsatisfied one
    expected = np.tile([0.25 * 0.5 + 0.75 * 0.5, 0.25 * 0.25 + 0.75 * dbn], (4, 1))
    np.testing.assert_allclose(model.click_prob(model_log().rankings), expected, rtol=1e-12)


@WEAK
def test_an_encoded_log(tmp_path: Path) -> None:
    folder = artifact(
        tmp_path / "log",
        "log",
        IDS,
        vocabulary=VOCABULARY,
        blocks=[[0, 2, 2, 0, 0], [2, 2, 2, 4, 2]],
        kinds={},
        facts={"files": 1, "first_file": "log.csv", "key": "0", "sessions_left_out": 0, "files_left_out": []},
    )
    (folder / "pair.bin").write_bytes(np.array([0, 1, 0, 1, 1, 0, 3, 2], "<i4").tobytes())
    (folder / "click.bin").write_bytes(b"\x80\x00@\xc0")  # a bit per rank, a byte per session; clicked lists last
    log = model_log()
    assert sorted(content(cs.open_log(folder))) == sorted(content(log))
    ours, theirs = cs.fit("UBM", folder), cs.fit("UBM", log)
    np.testing.assert_allclose(ours.relevance(), theirs.relevance(), rtol=1e-9)


@WEAK
def test_daily_counts(tmp_path: Path) -> None:
    tables = {
        "clicks": [2.0, 0, 1, 1, 0],
        "examined": [2.0, 1, 1, 1, 0],
        "first_clicks": [2.0, 0, 0, 1, 0],
        "first_examined": [3.0, 2, 0, 1, 0],
        "followed": [0.0, 0, 0, 1, 0],
        "followed_at_rank": [1.0, 0],
        "impressions": [3.0, 3, 1, 1, 0],
        "open_last": [1.0, 0, 0, 0, 0],
        "open_last_at_rank": [1.0, 0],
    }
    arrays = IDS | {f"cascade.{name}": np.array(table) for name, table in tables.items()}
    arrays |= {
        "cells.impressions": np.array([2.0, 1, 1, 1, 1, 1, 1]),
        "cells.clicks": np.array([1.0, 1, 0, 0, 0, 1, 1]),
    }
    arrays |= {
        "cells.pair": np.array([0, 0, 1, 1, 1, 2, 3], np.int32),
        "cells.situation": np.array([0, 1, 0, 1, 2, 2, 0], np.int32),
        "tails.length": np.array([2, 2]),
        "tails.sessions": np.array([1, 1]),
        "tails.start": np.array([0, 1]),
        "tails.count": np.ones(2),
        "tails.pair": TAILS,
    }
    facts = {"ranks": 2, "sessions": 4.0, "first": None, "last": None, "passed": 1.0, "notes": {"logs": ["log.csv"]}}
    day = cs.DayCounts.load(artifact(tmp_path / "counts", "count", arrays, vocabulary=VOCABULARY, **facts))
    assert day.sessions == 4
    for name, parameter, expected in FITTED:
        fitted = getattr(cs.fit(name, day), parameter)
        np.testing.assert_allclose(fitted, getattr(cs.fit(name, model_log()), parameter), rtol=1e-9)
        np.testing.assert_allclose(fitted, expected, rtol=1e-8)  # both stop within a tolerance of the maximum


def test_a_ranker(tmp_path: Path) -> None:
    facts = {"learner": "ClickRanker(loss='pbm')", "kind": "network", "held_out_loss": 1.5}
    arrays = {"0": np.array([[2.0], [-1.0]], np.float32), "0.bias": np.array([0.5], np.float32)}
    ranker = load_ranker(
        artifact(tmp_path / "ranker", "ranker", arrays, ranker=facts | {"rounds": 8, "converged": True}, notes={})
    )
    assert isinstance(ranker, Ranker)
    assert ranker.learner == "ClickRanker(loss='pbm')"
    features = np.array([[np.e - 1, 0.0], [0.0, np.e - 1]], np.float32)
    np.testing.assert_allclose(ranker.score(features), [2.5, -0.5], rtol=1e-6)


SHIFT = (
    "PolicyShift(users=(('CoCM-mismatch', 'CoCM_mismatch'),), "
    "training=(('PL-oracle', \"PlackettLuce(NoisyOracle, temperature=0.1, scores='log')\"),), "
    "contenders=(Contender(name='dCTR', learner='dCTR', role='baseline', content=''), "
    "Contender(name=\"EM('PBM')\", learner=\"EM('PBM')\", role='click model', content='')), "
    "world=World(testing=(('random', 'Uniform'),), queries=12, documents=None, sessions=400, test_sessions=50, "
    "ranks=10, seed=0, content='builtin'), seeds=1, derived=None, derived_users=('CoCM-mismatch',))"
)
TASKS = ["7a666e026eeac3cdd0bc0645", "ac4cc86f8d0d8cccf21705cf"]
"""Names of the files with the rows of finished tasks, which are of version 1."""


@contextmanager
def asks_to_start_again_if_refused() -> Iterator[None]:
    """Let an error pass if it is the one that asks to start the run again."""
    try:
        yield
    except FileError as error:
        if error.code != "other-version":
            raise


def test_a_run_is_continued_or_asks_to_be_started_again(tmp_path: Path) -> None:
    """Its finished tasks are found if their rows are of today's version, and are run again otherwise."""
    (tmp_path / "run.json").write_text(json.dumps({"corpus": "builtin", "protocol": SHIFT, "modules": []}))
    with asks_to_start_again_if_refused():
        protocol, folder, _ = open_run(tmp_path)
        assert [folder.file(replace(task, version=1)).stem for task in protocol.tasks()] == TASKS
        assert ([folder.file(task).stem for task in protocol.tasks()] == TASKS) == (VERSION == 1)


def test_a_run_with_unknown_settings_asks_to_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"protocol": SHIFT.replace("World", "Planet")}))
    with raises_code("other-version", FileError, path=tmp_path):
        open_run(tmp_path)
