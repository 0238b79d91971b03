"""Small files in the published formats of the real data samples, made by the project: they stand in for the samples.

`write_standins(folder)` writes them under the names that the samples have below the folder of real data, so that a test
can be given either folder. Nothing is copied from a sample: ids, lists, clicks, labels and features are drawn with
fixed seeds, and the functions that draw them are public, so that a test knows exactly what a file holds.

| file | format | what it holds |
|---|---|---|
| yandex_wscd/trainSample.gz | entries that end in a semicolon | `yandex_entries()` |
| trec_session2014/*_per_query_quid.txt.gz | five or six columns between tabs | `trec_pages(part)`, `trec_labelled()` |
| open_bandit/{random,bts}/men/ | CSV, and item_context beside it | `bandit_rows(policy)` |
| mslr_sample/web10k_fold1_{train,test}_5k.txt.gz | LETOR text, 136 features | `mslr_documents(part)` |
| mq2008/S1.txt.gz to S5.txt.gz | LETOR text with comments, 46 features | `mq2008_documents(part)` |
| lightgbm_rank/rank.{train,test}{.gz,.query} | sparse, no qid; sizes of queries beside | `lightgbm_documents(part)` |
"""

from __future__ import annotations

import gzip
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

RANKS = 10
TREC_SIZES = {"train": 300, "valid": 50, "test": 100}
TREC_REPEAT = 50
"""Every so many pages, the last document of a page is its first one again."""
TREC_LABELLED = 120
"""The first pages of the training file are labelled."""
TREC_CONFLICTS = 3
"""Pairs that two pages label differently."""
YANDEX_SIZES = {"10_1": 684, "7_0": 216, "33_2": 150, "501_1": 90, "9_3": 60}
YANDEX_STRAY = 100
"""Every so many entries, a click is on a document that the page does not show."""
BANDIT_ITEMS, BANDIT_ROWS, BANDIT_DAYS = 34, 2100, 7
MSLR_QUERIES, MQ2008_QUERIES = 12, 14
LIGHTGBM_QUERIES = {"train": 12, "test": 5}


class Entry(NamedTuple):
    """A page of results of the Yandex sample."""

    query: str
    docs: tuple[int, ...]
    clicked: tuple[int, ...]
    """As written: in order of time, with repeats, perhaps with documents that are not shown."""


@cache
def yandex_entries() -> tuple[Entry, ...]:
    """1,200 pages of five queries, one of which has 57 %, in order of the queries.

    Each query has four lists, of ten of its twelve documents. Users go down the list as UBM says: the further the last
    click is above, the rarer they look.
    """
    rng = np.random.default_rng(2012)
    entries: list[Entry] = []
    for number, (query, size) in enumerate(YANDEX_SIZES.items()):
        docs = 1000 * (number + 1) + rng.permutation(500)[:12]
        attractive = rng.uniform(0.05, 0.9, 12)
        lists = [rng.permutation(12)[:RANKS] for _ in range(4)]
        for page in range(size):
            shown = lists[page % 4]
            clicked: list[int] = []
            last = -1
            for rank, doc in enumerate(shown):
                looked = 0.9 if last == rank - 1 else 0.5 ** (rank - last - 1)
                if rng.random() < looked * attractive[doc]:
                    last = rank
                    clicked.append(int(docs[doc]))
            if page % 7 == 0:
                clicked += clicked[:1]
            if len(entries) % YANDEX_STRAY == 0:
                clicked.append(999_999)
            entries.append(Entry(query, tuple(docs[shown].tolist()), tuple(clicked)))
    return tuple(entries)


class Page(NamedTuple):
    """A page of results of the TREC files."""

    session: int
    query: int
    docs: tuple[int, ...]
    clicks: tuple[int, ...]
    labels: tuple[int, ...] = ()

    @property
    def repeats(self) -> bool:
        """Whether a document stands twice: readers leave such pages out."""
        return len(set(self.docs)) < len(self.docs)


@cache
def trec_pages(part: str) -> tuple[Page, ...]:
    """Pages of ten documents of 30 queries; a document is clicked the oftener, the higher its rank and its label."""
    rng = np.random.default_rng([2014, *part.encode()])
    pages = []
    for number in range(TREC_SIZES[part]):
        query = int(rng.integers(30))
        docs = (12 * query + rng.permutation(14)[:RANKS]).tolist()  # neighbours among queries share two documents
        if number % TREC_REPEAT == TREC_REPEAT - 1:
            docs[-1] = docs[0]
        likely = [0.9 * 0.7**rank * (0.1 + 0.2 * max(_trec_label(query, doc), 0)) for rank, doc in enumerate(docs)]
        clicks = (rng.random(RANKS) < likely).astype(int).tolist()
        pages.append(Page(400 + number // 4, 200 + query, tuple(docs), tuple(clicks)))
    return tuple(pages)


@cache
def trec_labelled() -> tuple[Page, ...]:
    """The first training pages with their labels, -2 to 4. The last page of each of three queries says otherwise about
    its first document, which another page shows as well."""
    pages = [
        page._replace(labels=tuple(_trec_label(page.query - 200, doc) for doc in page.docs))
        for page in trec_pages("train")[:TREC_LABELLED]
    ]
    changed: set[int] = set()
    for number in range(len(pages) - 1, 0, -1):
        page = pages[number]
        earlier = [other for other in pages[:number] if other.query == page.query and page.docs[0] in other.docs]
        if earlier and not page.repeats and page.query not in changed and len(changed) < TREC_CONFLICTS:
            changed.add(page.query)
            pages[number] = page._replace(labels=((page.labels[0] + 3) % 5, *page.labels[1:]))
    return tuple(pages)


def _trec_label(query: int, doc: int) -> int:
    return (0, 1, 0, 2, 4, 0, -2, 3, 1)[(7 * query + 5 * doc) % 9]


class Shown(NamedTuple):
    """A row of Open Bandit: one item at one position."""

    time: datetime
    item: int
    position: int
    click: int
    propensity: float


def bandit_click_rate() -> np.ndarray:
    """How likely each item is clicked, wherever it stands."""
    return 0.02 + 0.2 * np.random.default_rng(34).random(BANDIT_ITEMS)


@cache
def bandit_rows(policy: str) -> tuple[Shown, ...]:
    """2,100 rows of a week. `random` draws from all 34 items alike; `bts` the more from the best, the later it is."""
    rng = np.random.default_rng([34, *policy.encode()])
    rate, rows = bandit_click_rate(), []
    start = datetime(2019, 11, 24)
    for day in range(BANDIT_DAYS):
        liking = np.exp((2 + 4 * day) * rate) if policy == "bts" else np.ones(BANDIT_ITEMS)
        propensity = liking / liking.sum()
        n = BANDIT_ROWS // BANDIT_DAYS
        item, position = rng.choice(BANDIT_ITEMS, n, p=propensity), rng.integers(1, 4, n)
        click, second = (rng.random(n) < rate[item]).astype(int), np.sort(rng.uniform(0, 86_400, n))
        for s, i, place, clicked in zip(second.tolist(), item.tolist(), position.tolist(), click.tolist(), strict=True):
            rows.append(Shown(start + timedelta(day, s), i, place, clicked, float(propensity[i])))
    return tuple(rows)


class Documents(NamedTuple):
    """The lines of a LETOR file: what they say, and the lines."""

    label: np.ndarray
    query: np.ndarray
    """By its qid, or by its number from 1 where lines have none."""
    doc: list[str]
    """Names, where lines have comments."""
    features: np.ndarray
    lines: list[str]

    @property
    def sizes(self) -> list[int]:
        """How many lines each query has."""
        return [len(list(group)) for _, group in groupby(self.query.tolist())]


@cache
def mslr_documents(part: str) -> Documents:
    """Twelve queries of 10 to 20 documents with labels 0 to 4; counts and scores among the features. Feature 110 rises
    with the label; the qids of the two parts differ. Lines end as the published ones do: blank, CR, LF."""
    rng = np.random.default_rng([10, *part.encode()])
    query = np.repeat((1 if part == "train" else 13) + 15 * np.arange(MSLR_QUERIES), rng.integers(10, 21, MSLR_QUERIES))
    label = rng.choice(5, len(query), p=[0.45, 0.3, 0.15, 0.05, 0.05])
    label[np.flatnonzero(np.diff(query, prepend=-1))] = 4
    label[np.flatnonzero(np.diff(query, append=-1))] = 0
    values = np.where(np.arange(136) % 3 == 0, rng.integers(0, 200, (len(query), 136)), 0).astype(float)
    values += np.where(np.arange(136) % 3 == 1, rng.normal(0, 20, (len(query), 136)).round(6), 0)
    values[:, 109] = (2 * label + rng.normal(0, 2, len(query)) + 10).round(6)
    texts = [[f"{value:g}" if value == int(value) else f"{value:.6f}" for value in row] for row in values]
    lines = [f"{y} qid:{q} {_numbered(row)} \r\n" for y, q, row in zip(label, query, texts, strict=True)]
    return Documents(label, query, [], np.array(texts, np.float64).astype(np.float32), lines)


@cache
def mq2008_documents(part: int) -> Documents:
    """Fourteen queries of 6 to 14 documents with labels 0 to 2, all 0 in two of them; features from 0 to 1, of which
    every fourth rises with the label. Neighbours among the queries have a document in common."""
    rng = np.random.default_rng([2008, part])
    size = rng.integers(6, 15, MQ2008_QUERIES)
    query = np.repeat(10_000 + 1000 * part + np.arange(MQ2008_QUERIES), size)
    label = rng.choice(3, len(query), p=[0.6, 0.25, 0.15])
    label[np.flatnonzero(np.diff(query, prepend=-1))] = 2
    label[query % 1000 < 2] = 0
    number = np.arange(len(query))
    number[np.cumsum(size)[:-1]] -= 1  # the first of a query is the last of the one before
    doc = [f"GX{part:03d}-{n // 100:02d}-{1_000_000 + 7919 * n}" for n in number.tolist()]
    values = np.where(rng.random((len(query), 46)) < 0.3, 0, rng.random((len(query), 46)))
    values[:, ::4] = (label[:, None] / 2 + values[:, ::4]) / 2
    texts = [[f"{value:.6f}" for value in row] for row in values]
    lines = [
        f"{y} qid:{q} {_numbered(row)} #docid = {name} inc = 1 prob = {chance:.6g}\n"
        for y, q, row, name, chance in zip(label, query, texts, doc, rng.random(len(query)), strict=True)
    ]
    return Documents(label, query, doc, np.array(texts, np.float64).astype(np.float32), lines)


@cache
def lightgbm_documents(part: str) -> Documents:
    """Queries of 1 to 12 documents with labels 0 to 4; of 300 features a line names a quarter, the last one always."""
    rng = np.random.default_rng([300, *part.encode()])
    n = LIGHTGBM_QUERIES[part]
    size = np.r_[1, rng.integers(2, 13, n - 1)]
    before = 0 if part == "train" else LIGHTGBM_QUERIES["train"]
    query = before + np.repeat(np.arange(1, n + 1), size)
    label = np.r_[4, rng.integers(0, 5, len(query) - 1)]
    named = rng.random((len(query), 300)) < 0.25
    named[:, -1] = True
    texts = np.array([[f"{value:.2f}" for value in row] for row in rng.uniform(0.01, 0.99, named.shape)])
    lines = [
        f"{y} " + " ".join(f"{i + 1}:{row[i]}" for i in np.flatnonzero(there)) + "\n"
        for y, row, there in zip(label, texts, named, strict=True)
    ]
    return Documents(label, query, [], np.where(named, texts.astype(np.float64), 0).astype(np.float32), lines)


def _numbered(texts: list[str]) -> str:
    return " ".join(f"{number}:{text}" for number, text in enumerate(texts, start=1))


def write_standins(folder: Path) -> Path:
    """Write all stand-ins below the folder, which is returned."""
    _write_yandex(folder / "yandex_wscd")
    _write_trec(folder / "trec_session2014")
    for policy in ("random", "bts"):
        _write_bandit(folder / "open_bandit" / policy / "men", policy)
    for part in ("train", "test"):
        _pack(folder / "mslr_sample" / f"web10k_fold1_{part}_5k.txt.gz", mslr_documents(part).lines)
        beside = lightgbm_documents(part)
        _pack(folder / "lightgbm_rank" / f"rank.{part}.gz", beside.lines)
        (folder / "lightgbm_rank" / f"rank.{part}.query").write_text("".join(f"{size}\n" for size in beside.sizes))
    for number in range(1, 6):
        _pack(folder / "mq2008" / f"S{number}.txt.gz", mq2008_documents(number).lines)
    return folder


def _write_yandex(folder: Path) -> None:
    """Entries between blanks; every query begins a line."""
    lines = []
    for _, group in groupby(yandex_entries(), key=lambda entry: entry.query):
        entries = [
            f"{entry.query}\t{','.join(map(str, entry.docs))} :" + " ,".join(f" {doc}" for doc in entry.clicked)
            for entry in group
        ]
        lines.append("; ".join(entries) + "; ")
    _pack(folder / "trainSample.gz", ["\n".join(lines).rstrip()])


def _write_trec(folder: Path) -> None:
    types = [1] * RANKS
    files = {f"{part}_per_query_quid": trec_pages(part) for part in TREC_SIZES}
    for name, pages in (*files.items(), ("human_label_for_GraphCM_per_query_quid", trec_labelled())):
        lines = []
        for page in pages:
            lists = [list(page.docs), types, list(page.clicks), *([list(page.labels)] if page.labels else [])]
            lines.append("\t".join(map(str, [page.session, page.query, *lists])) + "\n")
        _pack(folder / f"{name}.txt.gz", lines)


def _write_bandit(folder: Path, policy: str) -> None:
    """The columns of the published files; user and item features are hashes, affinities are 0 in nearly all rows."""
    user = [f"user_feature_{i}" for i in range(4)]
    affinity = [f"user-item_affinity_{i}" for i in range(BANDIT_ITEMS)]
    names = ["", "timestamp", "item_id", "position", "click", "propensity_score", *user, *affinity]
    rest = ",".join([f"{i:032x}" for i in range(4)] + ["0.0"] * BANDIT_ITEMS)
    lines = [",".join(names) + "\n"]
    for number, row in enumerate(bandit_rows(policy)):
        first = (number, f"{row.time}+00:00", row.item, row.position, row.click, row.propensity)
        lines.append(",".join(map(str, first)) + f",{rest}\n")
    _pack(folder / "men.csv.gz", lines)
    context = [",item_id," + ",".join(f"item_feature_{i}" for i in range(4)) + "\n"]
    context += [f"{i},{i},{i / 7 - 2},{i:032x},{i % 5:032x},{i % 3:032x}\n" for i in range(BANDIT_ITEMS)]
    _pack(folder / "item_context.csv.gz", context)


def _pack(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(lines).encode(), compresslevel=1, mtime=0))
