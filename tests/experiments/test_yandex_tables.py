"""Tables 2, 6 and 8 of the policy-shift paper from the Yandex relevance log, in small: size check and intervals."""

from __future__ import annotations

from pathlib import Path

import pytest

import clickshift as cs
from clickshift.counts import open_log
from clickshift.experiments.real_logs import YANDEX_SIZE
from tests.io.datasets.test_yandex import wscd_query
from tests.io.datasets.test_yandex_streams import drawn_pages


@pytest.mark.parametrize("limit", [1 << 28, 0])
@pytest.mark.filterwarnings("ignore::clickshift.errors.ClickshiftWarning")
def test_the_papers_preparation_of_a_small_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """In memory and streamed; queries above 8 have no labels, documents of rank 1 in the lists are relevant."""
    monkeypatch.setattr(open_log, "MEMORY_LIMIT", limit)
    lines, labels = [], dict[tuple[int, int], int]()
    kept = [page for page in drawn_pages() if page[0] <= 8 and page[3]]
    for number, (query, region, docs, clicked) in enumerate(drawn_pages()):
        lines.append(wscd_query(number, query, region, docs) + "".join(f"{number}\t5\tC\t{doc}\n" for doc in clicked))
        if query <= 8:
            labels |= {(query, doc): int(doc % 3 == 0) for doc in docs}
    (tmp_path / "clicks.txt").write_text("".join(lines))
    (tmp_path / "labels.txt").write_text("".join(f"{q}\t0\t{doc}\t{y}\n" for (q, doc), y in labels.items()))
    result = cs.compare_logs(
        tmp_path / "clicks.txt",
        judgments=tmp_path / "labels.txt",
        format="yandex-wscd",
        annotated=True,
        with_clicks=True,
        merge_regions=True,
        models=["dCTR", "TopPop"],
        seeds=4,
        held_out=0.1,
        workers=0,
    )
    facts = result.to_dict()
    (size,) = facts["sizes"]
    assert size["queries"] == len({query for query, *_ in kept})
    assert size["documents"] == len({doc for _, _, docs, _ in kept for doc in docs})
    assert (size["published_queries"], size["published_documents"]) == tuple(YANDEX_SIZE.values()) == (4991, 255467)
    (log,) = facts["logs"]
    assert log["train_sessions"] + log["sessions"] == pytest.approx(0.9 * len(kept), abs=2)  # a tenth stops training
    for model in ("dCTR", "TopPop"):
        seeds = [row["seed"] for row in facts["rows"] if row["kind"] == "ranking" and row["model"] == model]
        assert seeds == [0, 1, 2, 3], "ties are broken in four orders"
    assert [row["seed"] for row in facts["rows"] if row["kind"] == "clicks"] == [0], "perplexity has no ties"
    (sizes,) = (section for section in result.document.sections if section.title == "Queries and documents")
    assert "4,991 queries" in sizes.explanation
