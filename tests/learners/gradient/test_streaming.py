"""Logs larger than memory by gradient: what is learned from a file is what is learned from memory, and nothing is lost
on the way."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import clickshift as cs
from clickshift.core import tempfiles
from clickshift.counts import open_log as opening
from clickshift.counts.open_log import open_log
from clickshift.data.corpus import Corpus
from clickshift.data.encoded_log import EncodedLog
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.errors import DataError, FileError
from clickshift.learners import training
from clickshift.learners.gradient import Gradient, trainer
from clickshift.learners.gradient import _batches as batches
from clickshift.learners.gradient import _shuffle as shuffle
from clickshift.learners.gradient._encoding import EncodedSessions
from clickshift.learners.gradient._prepare import TrainingData, prepare
from tests.codes import raises_code, warns_code
from tests.learners.gradient.cases import arrays, contents, counted, small

SESSIONS = 8000


def on_disk(log: Sessions, folder: Path, files: int = 3) -> EncodedLog:
    """The same log, encoded: each file becomes a block of its own."""
    folder.mkdir(parents=True)
    for k, rows in enumerate(np.array_split(np.arange(len(log)), files)):
        cs.write_log(log[rows], folder / f"part-{k}.parquet")
    found = open_log(folder, in_memory=False)
    assert isinstance(found, EncodedLog)
    assert len(found.blocks) == files
    return found


@pytest.fixture(scope="module")
def stored(world: tuple[Corpus, Sessions], tmp_path_factory: pytest.TempPathFactory) -> EncodedLog:
    return on_disk(world[1][:SESSIONS], tmp_path_factory.mktemp("streamed") / "log")


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fits: no log is read whole, batches are kept in files, buckets have some hundred sessions."""
    for module in (batches, trainer):
        monkeypatch.setattr(module, "RESIDENT_BYTES", 50_000)
    monkeypatch.setattr(shuffle, "BUCKET_BYTES", 20_000)
    monkeypatch.setattr(EncodedLog, "sessions", lambda self: pytest.fail("the log was read whole"))


def ready(
    learner: Gradient, data: EncodedLog | Sessions, held_out: EncodedLog | Sessions | None = None
) -> TrainingData:
    return prepare(learner, learner._class(), data, held_out, None)


def loss_of(model: cs.ClickModel) -> float:
    assert model.evidence is not None
    assert model.evidence.held_out_loss is not None
    return model.evidence.held_out_loss


def per_result(model: cs.ClickModel) -> float:
    """Perplexity, but for the average over ranks, on held-out lists of three."""
    return float(np.exp(loss_of(model) / 3))


@pytest.mark.parametrize("name", ["PBM", "DBN"])
def test_what_is_learned_from_a_file_is_what_is_learned_from_memory(
    name: str, stored: EncodedLog, request: pytest.FixtureRequest
) -> None:
    """With free logits there is one solution, and the log itself says when it is reached."""
    learner, log = Gradient(name, tower="free", learning_rate=0.01), stored.sessions()
    in_memory = learner.fit(log, held_out=log)
    request.getfixturevalue("no_memory")
    streamed = learner.fit(stored, held_out=stored)
    assert per_result(streamed) == pytest.approx(per_result(in_memory), abs=1e-4)
    assert np.abs(streamed.relevance() - in_memory.relevance()).max() < 0.02
    assert (streamed.evidence.impressions == in_memory.evidence.impressions).all()  # type: ignore[union-attr]
    assert streamed.vocabulary.same_as(in_memory.vocabulary)


def test_a_small_log_on_disk_is_learned_from_like_the_same_log_in_memory(stored: EncodedLog) -> None:
    one, other = (ready(small("ARM"), log) for log in (stored, stored.sessions()))
    for some, same in ((one.batches, other.batches), (one.held_out, other.held_out)):
        assert all((array == same[name]).all() for name, array in some.items())


def test_the_loss_on_held_out_sessions_is_that_of_the_model(no_memory: None, stored: EncodedLog) -> None:
    """Also where they are in a file, which is looked at piece by piece."""
    train, held_out = stored.split(0.5, rng=1)
    learner = small("ARM", rounds=1, batch=100)
    work = ready(learner, train, held_out)
    assert len(list(trainer._BatchSource.of(work.held_out).parts())) > 2
    model = learner.fit(train, held_out=held_out)
    nats, sessions = 0.0, 0
    for part in held_out.chunks():
        nats, sessions = nats - model.log_likelihood(part) @ part.count, sessions + part.total
    assert loss_of(model) == pytest.approx(nats / sessions, rel=1e-5)


@pytest.mark.parametrize("name", ["DBN", "NCM", "CACM_minus"])
def test_every_session_is_in_one_batch(
    name: str, no_memory: None, short_lists: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each kind of batch, written out session by session; some lists are shorter, some repeat."""
    monkeypatch.setattr(batches, "RESIDENT_BYTES", 1000)
    monkeypatch.setattr(shuffle, "BUCKET_BYTES", 2000)  # several runs, several buckets
    train, held_out = on_disk(short_lists, tmp_path / "log").split(0.7, rng=0)
    learner = small(name, tower="free")
    work = ready(learner, train, held_out)
    assert all(isinstance(array, np.memmap) for array in (*work.batches.values(), *work.held_out.values()))
    assert len(next(iter(work.batches.values()))) > 5
    for part, found in ((train, work.batches), (held_out, work.held_out)):
        log = Sessions.concat(list(part.in_vocabulary(work.vocabulary).chunks()))
        assert contents(found, work.program.histories) == counted(log, learner._class(), 3)


def test_every_order_is_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four sessions in runs of two, three and one of them, in two buckets: 24 orders, by a chi-square test."""
    one = np.ones((4, 1), bool)
    log = EncodedSessions(np.arange(4)[:, None], one, one, np.ones(4))
    size = shuffle._records(log).itemsize
    monkeypatch.setattr(shuffle, "BUCKET_BYTES", 2 * size)
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(480):
        parts = [log[:1], log[1:3], log[3:]]
        some = shuffle.shuffle_on_disk(parts, 4, tempfiles.SYSTEM_STORAGE, rng=np.random.default_rng(seed))
        seen[tuple(some.pair[:, 0].tolist())] += 1
    assert set(seen) == set(permutations(range(4)))
    assert sum((times - 20) ** 2 / 20 for times in seen.values()) < 49.7  # 1 in 1,000 with 23 degrees of freedom


def test_memory_does_not_grow_with_the_log(no_memory: None, tmp_path: Path) -> None:
    """Between 5,000 and 25,000 sessions of ten results: at most 12 bytes more per session, which are marks of what is
    held out and random numbers; a list alone is 42 bytes, and more than 600 while it becomes batches in memory."""
    rng, words = np.random.default_rng(0), Vocabulary.of(np.repeat(np.arange(20), 15), np.arange(300))[0]
    peak = {}
    for sessions in (5_000, 25_000):
        query = rng.integers(20, size=sessions)
        pair = 15 * query[:, None] + rng.permuted(np.tile(np.arange(15), (sessions, 1)), axis=1)[:, :10]
        log = Sessions(Rankings(words, query, pair), rng.random(pair.shape) < 0.2)
        data = on_disk(log, tmp_path / f"{sessions}", sessions // 1000)
        if not peak:
            ready(small("CACM_minus"), data)  # what is compiled is so from here on
        tracemalloc.start()
        work = ready(small("CACM_minus"), data)
        peak[sessions] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert work.batches["impressions"].sum() + work.held_out["impressions"].sum() == 10 * sessions
    assert peak[25_000] - peak[5_000] < 12 * 20_000


def test_an_epoch_reads_pieces_that_are_small_and_about_equal(no_memory: None, stored: EncodedLog) -> None:
    work = ready(small("NCM"), stored)
    source = trainer._BatchSource.of(work.batches)
    n, size = len(work.batches["pair.0"]), sum(array.nbytes for array in work.batches.values())
    assert size > 5 * 50_000
    pieces = list(source.round([0, 1], 0))
    for piece, order in pieces:
        assert sum(array.nbytes for array in piece.values()) < 50_000 / 2 + 2 * size / n
        assert (np.sort(order, axis=1) == np.arange(source.chunk)).all()
    assert n <= source.chunk * len(pieces) < n + len(pieces)
    rows = np.concatenate([np.asarray(piece["row.doc"]) for piece, _ in pieces])
    assert len(np.unique(rows, axis=0)) == len(np.unique(work.batches["row.doc"], axis=0))


def test_a_streamed_fit_goes_on_from_its_checkpoint(
    no_memory: None, stored: EncodedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "SAVE_EVERY", -1.0)
    learner, said, file = (
        small("PBM", tower="free", rounds=3, learning_rate=0.001),
        list[str](),
        tmp_path / "checkpoint.npz",
    )
    whole = learner.fit(stored, progress=said.append)
    assert f"{SESSIONS:,} sessions shuffled" not in said
    assert any(text.endswith("sessions shuffled") for text in said)

    def hear(text: str) -> None:
        if text.startswith("round 2:"):
            raise KeyboardInterrupt

    with warns_code("interrupted"):
        learner.fit(stored, progress=hear, checkpoint=file)
    said.clear()
    resumed = learner.fit(stored, progress=said.append, checkpoint=file)
    assert "resumed after round 2" in said
    assert all((a == b).all() for a, b in zip(arrays(whole), arrays(resumed), strict=True))


def test_a_checkpoint_belongs_to_a_log_and_what_is_held_out(no_memory: None, stored: EncodedLog, log: Sessions) -> None:
    learner = small("PBM")
    halves, parts = stored.split(0.5, rng=0), stored.split(0.5, rng=1)
    cases = [(stored, None), (stored, None), (stored, log), halves, halves[::-1], parts]
    prints = [ready(learner, *case).fingerprint for case in cases]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 5


def test_a_full_disk_is_one_clear_message(no_memory: None, stored: EncodedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    whole, opened = tempfiles.TemporaryFile, list[Path | None]()

    def file(dir: Path | None) -> object:
        opened.append(dir)
        return full.open("r+b") if len(opened) > room else whole(dir=dir)

    monkeypatch.setattr(tempfiles, "TemporaryFile", file)
    for room in (0, 1, 2, 12):  # runs, the log in random order, batches as they are made, and filled up
        opened.clear()
        with raises_code("no-space", FileError, path=stored.folder) as caught:
            small("PBM").fit(stored)
        assert len(opened) > room
        assert set(opened) == {stored.folder}
        message = str(caught.value)
        assert all(part in message for part in ("50 bytes", "No space left on device", "clickshift log encode"))
        assert "\n" not in message
    room = 0
    with raises_code("no-space", FileError) as caught:
        small("PBM").fit(next(stored.chunks()))
    assert "TMPDIR" in str(caught.value)
    assert opened[-1] is None


def test_sessions_with_unknown_documents_are_left_out_and_counted(no_memory: None, stored: EncodedLog) -> None:
    fewer = stored.vocabulary.with_pairs(np.arange(1, stored.vocabulary.n_pairs))
    train, held_out = stored.in_vocabulary(fewer).split(0.8, rng=0)
    bad = sum(int((part.rankings.shown & (part.rankings.pair < 0)).any(axis=1).sum()) for part in train.chunks())
    with warns_code("skipped-sessions", count=bad, total=train.total):
        work = ready(small("UBM"), train, held_out)
    assert work.batches["impressions"].sum() == 3 * (train.total - bad)
    assert work.held_out["impressions"].sum() == 3 * held_out.total
    none = stored.in_vocabulary(Vocabulary.of(np.array([0]), np.array([999]))[0])
    with raises_code("no-pairs", DataError):
        ready(small("UBM"), none)


def test_pairs_and_situations_of_a_large_log_are_told_apart() -> None:
    """Pairs are numbers of 32 bits; with their situations, they are more."""
    pair = np.array([[1 << 30, 5], [(1 << 30) + 1, 5]], np.int32)
    everything, situation = np.ones((2, 2), bool), np.array([[0, 6], [0, 6]])
    batch = batches.held_out_batches(EncodedSessions(pair, everything, everything, np.ones(2), situation), 2)
    assert batch["cell.pair"][0].tolist() == [5, 1 << 30, (1 << 30) + 1]
    assert batch["cell.situation"][0].tolist() == [6, 0, 0]


def test_a_folder_is_fitted_without_being_loaded(
    no_memory: None, stored: EncodedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "MEMORY_LIMIT", 0)
    folder = stored.folder.parents[1]
    model = cs.fit(small("PBM", rounds=1), str(folder / "*.parquet"))
    models = [cs.fit(small("PBM", rounds=1), stored)]
    assert loss_of(models[0]) == loss_of(model)
    assert not [path for path in stored.folder.iterdir() if path.suffix not in {".json", ".safetensors", ".bin"}]
