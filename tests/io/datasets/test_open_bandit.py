"""The Open Bandit Dataset: every row is one item at one place, with its propensity."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clickshift.errors import ClickshiftError, ClickshiftWarning, FileError
from clickshift.io.datasets import open_bandit
from clickshift.io.datasets.open_bandit import read_open_bandit
from tests.codes import raises_code, warns_code
from tests.standins import BANDIT_ITEMS, BANDIT_ROWS, bandit_rows

HEADER = ",timestamp,item_id,position,click,propensity_score,user_feature_0\n"
ROWS = (
    "0,2019-11-24 00:03:13.442536+00:00,14,3,0,0.25,abc\n"
    "1,2019-11-24 09:03:14+09:00,2,1,1,0.5,abc\n"
    "2,2019-11-24T00:03:15Z,14,1,0,1,abc\n"
)


def write(folder: Path, text: str, name: str = "men.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def test_a_row_is_a_session_of_one_item_at_one_place(tmp_path: Path) -> None:
    log = read_open_bandit(write(tmp_path, HEADER + ROWS))
    words = log.vocabulary
    assert words.query_ids[log.rankings.query].tolist() == ["men/3", "men/1", "men/1"]
    assert words.doc_ids[words.pair_doc[log.rankings.pair]].tolist() == [[14], [2], [14]]
    assert log.click.tolist() == [[False], [True], [False]]
    assert log.rankings.log_prob is not None
    assert np.exp(log.rankings.log_prob).tolist() == [0.25, 0.5, 1.0]
    assert log.time is not None
    expected = ["2019-11-24T00:03:13.442536", "2019-11-24T00:03:14.000000", "2019-11-24T00:03:15.000000"]
    assert log.time.astype(str).tolist() == expected
    assert log.user is None


def test_campaigns_do_not_share_items(tmp_path: Path) -> None:
    from clickshift.data.sessions import Sessions

    men, women = (read_open_bandit(write(tmp_path, HEADER + ROWS, f"{name}.csv")) for name in ("men", "women"))
    assert Sessions.concat([men, women]).vocabulary.n_pairs == 6


def test_a_folder_holds_one_campaign(tmp_path: Path) -> None:
    with raises_code("no-files", FileError, path=tmp_path, names=[], count=0):
        read_open_bandit(tmp_path)
    write(tmp_path, HEADER + ROWS)
    write(tmp_path, "not,read\n", "item_context.csv")
    assert len(read_open_bandit(tmp_path)) == 3
    write(tmp_path, HEADER + ROWS, "women.csv")
    with raises_code("no-files", FileError, path=tmp_path, names=["men.csv", "women.csv"], count=2):
        read_open_bandit(tmp_path)


GOOD = "3,2019-11-24 00:03:13+00:00,14,3,0,0.25,abc"
BAD_ROWS = [
    GOOD.replace(",14,", ",-1,"),
    GOOD.replace(",14,", ",,"),
    GOOD.replace(",14,", ",x,"),
    GOOD.replace(",14,", ",0x10,"),
    GOOD.replace(",14,", f",{10**30},"),
    GOOD.replace(",3,0,", ",0,0,"),
    GOOD.replace(",3,0,", ",3,2,"),
    GOOD.replace(",3,0,", ",3,,"),
    GOOD.replace("0.25", "0"),
    GOOD.replace("0.25", "1.01"),
    GOOD.replace("0.25", "nan"),
    GOOD.replace("0.25", "inf"),
    GOOD.replace("0.25", "-0.25"),
    GOOD.replace("0.25", "1e-999"),
    GOOD.replace("0.25", ""),
    GOOD.replace("11-24", "13-24"),
    GOOD.replace("11-24", "02-30"),
    GOOD.replace("+00:00", ""),
    GOOD.replace("2019-11-24 ", ""),
    GOOD + ",more",
    "3,2019-11-24 00:03:13+00:00,14,3,0",
    "oops",
]


@pytest.mark.parametrize("row", BAD_ROWS)
def test_a_bad_row_is_an_error_with_its_line_or_is_skipped(tmp_path: Path, row: str) -> None:
    path = write(tmp_path, f"{HEADER}{ROWS}\n{row}\n{GOOD}\n")
    with raises_code("bad-line", FileError, line=6) as caught:
        read_open_bandit(path)
    assert caught.value.line == 6
    with warns_code("skipped-input", bad_lines=1, left_out={}, line=6):
        assert len(read_open_bandit(path, on_bad_line="skip")) == 4


def test_line_numbers_between_ragged_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(open_bandit.ReadReport, "bad_line", lambda self, line, rule, got: seen.append(line))
    bad = GOOD.replace("0.25", "2")
    lines = [GOOD, "ragged", bad, "ragged", "ragged", GOOD, bad, "", bad, "ragged"] * 3
    log = read_open_bandit(write(tmp_path, HEADER + "\n".join(lines)))
    assert len(log) == 6
    assert seen == [number for number, line in enumerate(lines, start=2) if line in {bad, "ragged"}]


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        ("", "damaged-file", {"format": "CSV"}),
        (HEADER, "empty-file", {"bad_lines": 0, "left_out": {}}),
        (HEADER + "\n\n", "empty-file", {"bad_lines": 0, "left_out": {}}),
        (
            HEADER.replace("click", "clicks") + ROWS,
            "missing-column",
            {"columns": ["timestamp", "item_id", "position", "click", "propensity_score"], "line": 1},
        ),
        (
            "oops\n",
            "missing-column",
            {"columns": ["timestamp", "item_id", "position", "click", "propensity_score"], "line": 1},
        ),
        (
            HEADER + '"' + ROWS,
            "bad-line",
            {"line": 2},
        ),
    ],
)
def test_what_is_no_open_bandit_file(tmp_path: Path, text: str, code: str, facts: dict[str, Any]) -> None:
    with raises_code(code, FileError, **facts):
        read_open_bandit(write(tmp_path, text))


def test_a_missing_file(tmp_path: Path) -> None:
    with raises_code("file-not-found", FileError):
        read_open_bandit(tmp_path / "men.csv")


@pytest.mark.parametrize("policy", ["random", "bts"])
def test_a_published_folder_is_read_row_by_row(standins: Path, policy: str) -> None:
    """All columns of the published files, of which most are not used, and item_context beside them."""
    log, rows = read_open_bandit(standins / "open_bandit" / policy / "men"), bandit_rows(policy)
    words = log.vocabulary
    assert (len(log), log.n_ranks, words.n_docs) == (BANDIT_ROWS, 1, BANDIT_ITEMS)
    assert words.query_ids.tolist() == ["men/1", "men/2", "men/3"]
    assert words.query_ids[log.rankings.query].tolist() == [f"men/{row.position}" for row in rows]
    assert words.doc_ids[words.pair_doc[log.rankings.pair]].tolist() == [[row.item] for row in rows]
    assert log.click.tolist() == [[row.click == 1] for row in rows]
    assert log.rankings.log_prob is not None
    assert np.exp(log.rankings.log_prob) == pytest.approx([row.propensity for row in rows])
    assert log.time is not None
    assert log.time.tolist() == [row.time for row in rows]


@pytest.mark.parametrize(
    ("policy", "clicks", "places", "lowest", "highest"),
    [
        ("random", 46, [3284, 3388, 3328], 1 / 34, 1 / 34),
        ("bts", 69, [3339, 3262, 3399], 0.000165, 0.72529),
    ],
)
def test_the_real_samples(
    shared_data: Path, policy: str, clicks: int, places: list[int], lowest: float, highest: float
) -> None:
    log = read_open_bandit(shared_data / "open_bandit" / policy / "men")
    assert len(log) == 10_000
    assert log.n_ranks == 1
    assert log.click.sum() == clicks
    assert log.vocabulary.n_docs == 34
    assert log.vocabulary.query_ids.tolist() == ["men/1", "men/2", "men/3"]
    assert np.bincount(log.rankings.query).tolist() == places
    assert log.rankings.log_prob is not None
    propensity = np.exp(log.rankings.log_prob)
    assert propensity.min() == pytest.approx(lowest)
    assert propensity.max() == pytest.approx(highest)
    assert log.time is not None
    assert (np.diff(log.time) >= np.timedelta64(0)).all()


pieces = st.sampled_from([",", "\n", "\r", '"', "0", "1", ".", "é", GOOD, ROWS, " "])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.booleans(), text=st.one_of(st.text(), st.lists(pieces).map("".join)), skip=st.booleans())
def test_no_text_raises_anything_but_our_own_errors(header: bool, text: str, skip: bool, tmp_path: Path) -> None:
    path = write(tmp_path, (HEADER if header else "") + text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickshiftWarning)
        with contextlib.suppress(ClickshiftError):
            read_open_bandit(path, on_bad_line="skip" if skip else "error")
