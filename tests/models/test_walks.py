"""Chain models against the enumeration of every latent path, for all users, full and short lists."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import integrate

from clickshift.data.corpus import Corpus
from clickshift.data.sessions import Rankings, Sessions
from clickshift.data.vocabulary import Vocabulary
from clickshift.models.base import ClickModel
from clickshift.simulation import users
from clickshift.simulation.users import _clipped_normal
from clickshift.testing import check_click_model
from tests.models.walks import Pattern, independent, mix, walk_patterns

LABELS = [4, 1, 3, 0, 2]
GAIN = [(2**y - 1) / 15 for y in LABELS]


def one_list(n: int) -> tuple[Corpus, Rankings]:
    words = Vocabulary.of(np.zeros(n, int), np.arange(n))[0]
    return Corpus(words, np.array(LABELS[:n], np.float32)), Rankings(words, np.array([0]), np.arange(n)[None])


def likelihoods(model: ClickModel, rankings: Rankings) -> dict[Pattern, float]:
    found = {}
    for code in range(2**rankings.n_ranks):
        click = (code >> np.arange(rankings.n_ranks)) % 2 == 1
        found[tuple(click.tolist())] = float(np.exp(model.log_likelihood(Sessions(rankings, click[None]))[0]))
    return found


def dbn(order: list[int], a: list[float], s: list[float], g: float) -> dict[Pattern, float]:
    return walk_patterns(
        order,
        click=lambda r, previous: a[r],
        follow=lambda r, what: {"click": g * (1 - s[r]), "skip": g, "unseen": 0.0}[what],
    )


def complex_walk(order: list[int], a: list[float], s: float, g: float) -> dict[Pattern, float]:
    following = {r: a[order[i + 1]] if i + 1 < len(order) else 0.0 for i, r in enumerate(order)}
    return walk_patterns(
        order,
        click=lambda r, previous: 0.0 if previous else a[r] * (1 - following[r] / 2),
        follow=lambda r, what: {"click": g * (1 - s), "skip": g, "unseen": 0.0}[what],
    )


def printed_walk(order: list[int], a: list[float], s: float, g: float) -> dict[Pattern, float]:
    """Equation 17 as printed: P(E_k) is multiplied by gamma at each result, and by 1 - sigma after a click."""
    found: dict[Pattern, float] = {}
    for code in range(2 ** len(order)):
        clicks = [code >> k & 1 == 1 for k in range(len(order))]  # in the order of visits
        prob, examination = 1.0, 1.0
        for k, clicked in enumerate(clicks):
            following = a[order[k + 1]] if k + 1 < len(order) else 0.0
            p = 0.0 if k > 0 and clicks[k - 1] else a[order[k]] * (1 - following / 2) * examination
            prob *= p if clicked else 1 - p
            examination *= g * (1 - s if clicked else 1)
        found[tuple(clicks[order.index(r)] for r in range(len(order)))] = prob
    return found


def reference_walk(order: list[int], a: list[float], s: float, g: float) -> dict[Pattern, float]:
    """The authors' code: a draw after each click ends the clicks; gamma^k is a factor; the ends of the list differ."""
    place, last = {r: k for k, r in enumerate(order)}, len(order) - 1

    def click(r: int, previous: bool) -> float:
        k = place[r]
        if k == last and k > 0:
            return float(previous)
        following = a[order[k + 1]] if k < last else 0.0
        return 0.0 if previous else g**k * a[r] * (1 - following / (2 if k > 0 else 1))

    def follow(r: int, what: str) -> float:
        return {"click": 1.0 if place[r] == last - 1 else 1 - s, "skip": 1.0, "unseen": 0.0}[what]

    return walk_patterns(order, click=click, follow=follow)


def expected_dbn(n: int) -> dict[Pattern, float]:
    return dbn(list(range(n)), [max(0.95 * g, 0.02) for g in GAIN], [0.9 * g for g in GAIN], 0.9)


def expected_graded_dbn(n: int) -> dict[Pattern, float]:
    return dbn(list(range(n)), [max(y / 4, 0.1) for y in LABELS], [y / 8 for y in LABELS], 0.8)


Walk = Callable[[list[int], list[float], float, float], dict[Pattern, float]]


def expected_cocm(
    n: int, modes: tuple[float, float, float] = (0.6, 0.3, 0.1), walk: Walk = complex_walk
) -> dict[Pattern, float]:
    down, a = list(range(n)), [max(g, 0.02) for g in GAIN]
    return mix(
        [
            (modes[0], walk(down, a, 0.7, 0.9)),
            (modes[1], walk(down[::-1], a, 0.7, 0.9)),
            (modes[2], independent([0.2 * 0.9**k for k in range(n)])),
        ]
    )


def noisy(mean: float, power: int) -> float:
    """E[a^power] of a = clip(mean + .1 N, .1, 1), by numerical integration."""

    def term(x: float) -> float:
        return min(max(mean + 0.1 * x, 0.1), 1) ** power * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)

    kinks = sorted({(0.1 - mean) / 0.1, (1 - mean) / 0.1})
    value: float = integrate.quad(term, -9, 9, points=[k for k in kinks if -9 < k < 9], epsabs=1e-13)[0]
    return value


def expected_mixture(n: int) -> dict[Pattern, float]:
    a, down = [noisy(g, 1) for g in GAIN], list(range(n))
    return mix([(0.7, dbn(down, a, GAIN, 0.7)), (0.3, dbn(down[::-1], a, GAIN, 0.7))])


def expected_carousel(n: int, columns: int) -> dict[Pattern, float]:
    """Each row apart: whether it is looked at is drawn; satisfaction is the very draw that attracted."""
    mean, square = [noisy(g, 1) for g in GAIN], [noisy(g, 2) for g in GAIN]
    parts: list[dict[Pattern, float]] = []
    for row, start in enumerate(range(0, n, columns)):
        inside = list(range(start, min(start + columns, n)))
        walked = dbn(
            list(range(len(inside))),
            [mean[r] for r in inside],
            [square[r] / mean[r] for r in inside],
            0.75,
        )
        looked = (1 / (row + 1)) ** 0.5
        parts.append(mix([(looked, walked), (1 - looked, {(False,) * len(inside): 1.0})]))
    joint: dict[Pattern, float] = {(): 1.0}
    for part in parts:
        joint = {a + b: p * q for a, p in joint.items() for b, q in part.items()}
    return joint


CASES = {
    "DBN": (users.DBN(), expected_dbn),
    "GradedDBN": (users.GradedDBN(), expected_graded_dbn),
    "CoCM": (users.CoCM(), expected_cocm),
    "CoCM_mismatch": (users.CoCM_mismatch(), lambda n: expected_cocm(n, (0.2, 0.7, 0.1))),
    "CoCM, equation 17": (users.CoCM(reading="equation-17"), lambda n: expected_cocm(n, walk=printed_walk)),
    "CoCM, reference code": (users.CoCM(reading="reference-code"), lambda n: expected_cocm(n, walk=reference_walk)),
    "CoCM_mismatch, equation 17": (
        users.CoCM_mismatch(reading="equation-17"),
        lambda n: expected_cocm(n, (0.2, 0.7, 0.1), printed_walk),
    ),
    "CoCM_mismatch, reference code": (
        users.CoCM_mismatch(reading="reference-code"),
        lambda n: expected_cocm(n, (0.2, 0.7, 0.1), reference_walk),
    ),
    "MixtureDBN": (users.MixtureDBN(), expected_mixture),
    "Carousel": (users.Carousel(columns=2), lambda n: expected_carousel(n, 2)),
    "PBM": (users.PBM(), lambda n: independent([(0.1 + 0.9 * g) / (k + 1) for k, g in enumerate(GAIN[:n])])),
}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("name", CASES)
def test_likelihoods_equal_the_sum_over_latent_paths(name: str, n: int) -> None:
    user, expected = CASES[name]
    corpus, rankings = one_list(n)
    found, wanted = likelihoods(user.on(corpus), rankings), expected(n)
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    for pattern, prob in found.items():
        assert prob == pytest.approx(wanted.get(pattern, 0.0), abs=1e-12), pattern


@pytest.mark.parametrize("reading", users.READINGS)
def test_marginals_and_samples_of_each_reading_of_cocm(reading: str) -> None:
    """Marginals are the sums over click patterns, also in lists of different lengths; samples follow them."""
    corpus, _ = one_list(5)
    model = users.CoCM_mismatch(reading=reading).on(corpus)
    check_click_model(model, ranks=4, lists=6, draws=4000)


@pytest.mark.parametrize("mean", [0.0, 0.05, 0.47, 0.97, 1.0])
def test_moments_of_a_clipped_normal(mean: float) -> None:
    first, second = _clipped_normal(np.array([mean]), 0.1, 0.1)
    assert first[0] == pytest.approx(noisy(mean, 1), abs=1e-10)
    assert second[0] == pytest.approx(noisy(mean, 2), abs=1e-10)


def test_a_click_resets_examination_in_the_real_dbn_but_not_as_published() -> None:
    """Why the published form is an option: P(click 5 | click 4) is .8 (1 - 1/8) .25 in a DBN, about .061 in theirs."""
    labels = np.array([3, 2, 2, 1, 1, 1, 0, 0, 0, 0], np.float32)
    words = Vocabulary.of(np.zeros(10, int), np.arange(10))[0]
    corpus, rankings = Corpus(words, labels), Rankings(words, np.array([0]), np.arange(10)[None])
    joint = {}
    for published in (False, True):
        model = users.GradedDBN(as_published=published).on(corpus)
        both, fourth = 0.0, 0.0
        for code in range(2**5):
            click = np.zeros((1, 10), bool)
            click[0, :5] = (code >> np.arange(5)) % 2 == 1
            given = model.click_prob_given_history(Sessions(rankings, click))[0]
            prob = np.prod(np.where(click[0, :5], given[:5], 1 - given[:5]))
            both += prob * (click[0, 3] and click[0, 4])
            fourth += prob * click[0, 3]
        joint[published] = both / fourth
    assert joint[False] == pytest.approx(0.8 * (1 - 1 / 8) * 0.25, abs=1e-12)
    assert joint[True] == pytest.approx(0.061, abs=0.002)
