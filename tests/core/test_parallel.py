"""Loops in threads: every number is worked on once, whoever takes it, and a failure ends the loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from clickshift.core import parallel
from clickshift.core.parallel import for_each, in_threads, map_in_order

SECONDS = 20
"""Time after which threads that should meet are said not to."""


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICKSHIFT_THREADS", "3")


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000])
def test_every_number_is_worked_on_once(n: int) -> None:
    taken: list[int] = []
    for_each(taken.append, n)
    assert sorted(taken) == list(range(n))


def test_as_many_threads_work_as_there_are_cores_the_calling_one_among_them() -> None:
    meeting = threading.Barrier(3)

    def work(k: int) -> threading.Thread:
        meeting.wait(SECONDS)
        return threading.current_thread()

    threads = in_threads(work, 3)
    assert len(set(threads)) == 3
    assert threading.current_thread() in threads


def test_a_loop_inside_a_loop_takes_no_further_threads() -> None:
    meeting = threading.Barrier(2)

    def work(k: int) -> bool:
        meeting.wait(SECONDS)
        return set(in_threads(thread, 5)) == {threading.current_thread()}

    def thread(k: int) -> threading.Thread:
        time.sleep(0.002)  # so that another thread would take the next number
        return threading.current_thread()

    assert in_threads(work, 2) == [True, True], "the third thread is free"
    assert in_threads(thread, 1) == [threading.current_thread()]
    assert not parallel._thread_state.is_worker, "the next loop has threads again"


def test_the_first_failure_is_raised_and_nothing_more_is_begun() -> None:
    begun: list[int] = []
    two_failed = threading.Event()

    def work(k: int) -> None:
        begun.append(k)
        if k == 1:
            assert two_failed.wait(SECONDS)
            raise KeyError(k)
        if k == 2:
            two_failed.set()
            raise ValueError(k)

    with pytest.raises(KeyError, match="1"):
        for_each(work, 1000)
    assert {0, 1, 2} <= set(begun)
    assert len(begun) < 1000


def test_an_interrupt_ends_the_loop_once_other_threads_are_done() -> None:
    main, others = threading.current_thread(), threading.Semaphore(0)
    begun: list[int] = []
    done: list[int] = []

    def work(k: int) -> None:
        if threading.current_thread() is main:
            assert others.acquire(timeout=SECONDS)
            raise KeyboardInterrupt
        begun.append(k)
        others.release()
        time.sleep(0.02)
        done.append(k)

    with pytest.raises(KeyboardInterrupt):
        for_each(work, 1000)
    assert sorted(begun) == sorted(done)
    assert len(done) < 999


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_results_come_in_order_with_few_ahead(n: int) -> None:
    drawn: list[int] = []

    def numbers() -> Iterator[int]:
        for k in range(n):
            drawn.append(k)
            yield k

    results = map_in_order(lambda k: k * k, numbers())
    for expected in range(n):
        assert next(results) == expected**2
        assert len(drawn) <= expected + 6
    assert next(results, None) is None
