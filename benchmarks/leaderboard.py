"""Tables of docs/robust-models.md, from the results of stacking.py and stacking_variants.py and the shipped rows.

    python benchmarks/leaderboard.py            # print the tables
    python benchmarks/leaderboard.py --page     # write them into the page

A test compares the page with these tables, so run it again when results or shipped rows change.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "robust-models.md"
STACKING = "Stacking"
GRADIENT = ("PBM", "UBM", "DBN", "NCM", "CACM-minus", "ARM")
ORACLE = "user (oracle)"
FIRST_WORLD = 0
"""World of the shipped rows of gradient models, with which Max-Reward clicks are compared."""
Shift = tuple[int, str, str, str]
"""World, users, training policy and test policy."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="write the tables into the page")
    options = parser.parse_args()
    blocks = page_blocks()
    if options.page:
        PAGE.write_text(with_blocks(PAGE.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    else:
        print("\n\n".join(blocks.values()))


def page_blocks() -> dict[str, str]:
    """Generated blocks of the page, by name."""
    results = json.loads((HERE / "results" / "stacking.json").read_text(encoding="utf-8"))
    variants = json.loads((HERE / "results" / "stacking_variants.json").read_text(encoding="utf-8"))
    board = leaderboard(results["policy shift"], shipped_rows())
    blocks = {
        "leaderboard": board_table(board),
        "worlds": worlds_table(board),
        "finding": finding(board),
        "real": real_table(results["real logs"]),
        "loggers": loggers_table(variants["several logging policies"]),
        "penalty": penalty_table(variants["penalty"]),
        "sources": sources_table(json.loads((HERE / "results" / "loss_sources.json").read_text(encoding="utf-8"))),
    }
    if variants["neural members"]:
        blocks["neural"] = neural_table(variants["neural members"])
    return blocks


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """Replace what is between the marks of each block."""
    for name, block in blocks.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        assert marks.search(text), name
        text = marks.sub(lambda found, block=block: f"{found[1]}\n{block}\n\n{found[2]}", text)
    return text


def shipped_rows() -> list[dict[str, Any]]:
    """Rows of the policy-shift grid that come with the package."""
    from importlib.resources import as_file, files

    from clickshift.display.tables import read_rows
    from clickshift.experiments.policy_shift.protocol import PolicyShift
    from clickshift.experiments.runner import REFERENCE_FILE, digest

    grid = {digest(task) for task in PolicyShift().tasks()}
    with as_file(files("clickshift.experiments") / "reference_rows" / REFERENCE_FILE) as path:
        return [row for row in read_rows(path) if row["cell"] in grid]


def is_shift(training: str, test: str) -> bool:
    """Whether the test policy did not train the log."""
    return test != "ind" and test.lower() not in training.lower()


def is_single(name: str) -> bool:
    """Whether a model of the leaderboard is one of the eight single models."""
    return "Stacking" not in name and "gradient" not in name


def leaderboard(rows: list[dict], shipped: list[dict]) -> dict[str, dict[str, Any]]:
    """Excess by shift, clicks and seconds of each model, by its name."""
    board: dict[str, dict[str, Any]] = {}
    for row in rows:
        own = board.setdefault(row["model"], {"learner": "", "excess": {}, "ind": [], "max_reward": [], "seconds": []})
        for test, value in row["excess"].items():
            if is_shift(row["training"], test):
                own["excess"][row["seed"], row["user"], row["training"], test] = value
        own["ind"].append(row["excess"]["ind"])
        own["seconds"].append(row["fit_seconds"])
        if "max_reward" in row and row["seed"] == FIRST_WORLD:
            own["max_reward"].append(row["max_reward"])
    logs = {(row["user"], row["training"]) for row in rows if "max_reward" in row}
    for name, own in gradient_models(shipped, logs).items():
        board[f"{name}, gradient"] = own
    singles = [own for name, own in board.items() if is_single(name)]
    for own in board.values():
        own["regret"] = [value - min(s["excess"][shift] for s in singles) for shift, value in own["excess"].items()]
    return board


def gradient_models(shipped: list[dict], reward_logs: set[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """The paper's models by gradient: means over their seeds in the first world, with clicks of some logs."""
    perplexity: dict[tuple, list[float]] = defaultdict(list)
    clicks, seconds = defaultdict(list), defaultdict(dict)
    for row in shipped:
        log = (row["user"], row["training"])
        if row["kind"] == "clicks":
            perplexity[row["model"], *log, row["testing"]].append(row["perplexity"])
            seconds[row["model"]][log] = row["fit_seconds"]
        elif row["kind"] == "policy" and row["policy"] == "Max-Reward" and log in reward_logs:
            clicks[row["model"]].append(row["expected_clicks"])
    found = {}
    for name in GRADIENT:
        own = {"excess": {}, "ind": [], "max_reward": clicks[name]}
        n_seeds = 1
        for (model, user, training, test), values in perplexity.items():
            if model == name:
                n_seeds = len(values)
                value = float(np.mean(values) - np.mean(perplexity[ORACLE, user, training, test]))
                if test == "ind":
                    own["ind"].append(value)
                elif is_shift(training, test):
                    own["excess"][0, user, training, test] = value
        own["seconds"] = [value / n_seeds for value in seconds[name].values()]
        found[name] = own
    return found


def board_table(board: Mapping[str, Mapping[str, Any]]) -> str:
    """The leaderboard, the lowest mean excess first."""
    lines = [
        "| model | ood excess: mean | worst | regret: mean | worst | ind excess | Max-Reward clicks | fit, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, own in sorted(board.items(), key=lambda item: float(np.mean(list(item[1]["excess"].values())))):
        ood = list(own["excess"].values())
        numbers = [np.mean(ood), max(ood), np.mean(own["regret"]), max(own["regret"]), np.mean(own["ind"])]
        clicks = short(np.mean(own["max_reward"]), 3) if own["max_reward"] else "–"
        shown = " | ".join(signed(x) if k in (2, 3) else short(x) for k, x in enumerate(numbers))
        bold = f"**{name}**" if name == STACKING else name
        lines.append(f"| {bold} | {shown} | {clicks} | {np.mean(own['seconds']):.2g} |")
    worlds = sorted({shift[0] for shift in board[STACKING]["excess"]})
    n_shifts = len(board[STACKING]["excess"])
    with_clicks = len(board[STACKING]["max_reward"])
    n_worlds = f"{len(worlds)} {'world' if len(worlds) == 1 else 'worlds'}"
    note = f"{n_shifts} shifts in {n_worlds}; Max-Reward clicks are means over {with_clicks} logs of the first."
    note += " Gradient models: the first world,\nmeans over their seeds, and seconds per seed."
    return "\n".join([*lines, "", note])


def worlds_table(board: Mapping[str, Mapping[str, Any]]) -> str:
    """The stacked mixture and the best single model of each world."""
    singles = [name for name in board if is_single(name)]
    shifts = list(board[STACKING]["excess"])
    lines = ["| world | Stacking | largest regret | best single model | best in hindsight |", "|---|---|---|---|---|"]
    for world in sorted({shift[0] for shift in shifts}):
        own = [shift for shift in shifts if shift[0] == world]
        mean = {name: np.mean([board[name]["excess"][shift] for shift in own]) for name in (*singles, STACKING)}
        hindsight = np.array([min(board[name]["excess"][shift] for name in singles) for shift in own])
        regret = max(board[STACKING]["excess"][shift] - least for shift, least in zip(own, hindsight, strict=True))
        best = min(singles, key=mean.__getitem__)
        numbers = (short(mean[STACKING]), signed(regret), f"{best}, {short(mean[best])}", short(hindsight.mean()))
        lines.append(f"| {world} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def finding(board: Mapping[str, Mapping[str, Any]]) -> str:
    """Maximum likelihood against gradients, in the same world."""
    first = {name: {s: v for s, v in own["excess"].items() if s[0] == 0} for name, own in board.items()}
    mean = {name: float(np.mean(list(values.values()))) for name, values in first.items()}
    shared = ("PBM", "UBM", "DBN")
    ahead = {name: sum(first[name][s] < first[f"{name}, gradient"][s] for s in first[name]) for name in shared}
    n = len(first[STACKING])
    hindsight = float(
        np.mean([min(first[f"{name}, gradient"][shift] for name in GRADIENT) for shift in first[STACKING]])
    )
    ratio = np.mean([np.mean(board[f"{m}, gradient"]["seconds"]) / np.mean(board[m]["seconds"]) for m in shared])
    texts = [
        f"{name}: {short(mean[name])} by maximum likelihood, {short(mean[f'{name}, gradient'])} by gradient; maximum "
        f"likelihood is ahead in\n  {ahead[name]} of {n} shifts."
        for name in shared
    ]
    best = min(GRADIENT, key=lambda name: mean[f"{name}, gradient"])
    lines = [f"- {text}" for text in texts]
    lines.append(f"- A gradient fit takes {ratio:.0f} times as long, per seed.")
    lines.append(f"- The best gradient model is {best}: {short(mean[f'{best}, gradient'])}.")
    lines.append(f"- The best of the six gradient models, shift by shift in hindsight: {short(hindsight)}.")
    return "\n".join([*lines, f"- The stacked mixture: {short(mean[STACKING])}."])


def real_table(rows: list[dict]) -> str:
    """Perplexities of held-out sessions of real logs."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    lines = [
        "| log | best single model | Stacking | Stacking ahead | largest regret | recommended by `compare` |",
        "|---|---|---|---|---|---|",
    ]
    for log in dict.fromkeys(row["log"] for row in rows):
        values = {m: np.array([r["perplexity"] for r in rows if r["log"] == log and r["model"] == m]) for m in names}
        best = min((m for m in names if m != STACKING), key=lambda m: values[m].mean())
        regret = values[STACKING] - np.min([values[m] for m in names if m != STACKING], axis=0)
        lines.append(
            f"| {log} | {best}, {values[best].mean():.4f} | {values[STACKING].mean():.4f} | "
            f"{int((regret < 0).sum())} of {len(regret)} | {signed(regret.max())} | {recommendations(rows, log)} |"
        )
    return "\n".join(lines)


def recommendations(rows: list[dict], log: str) -> str:
    """How often `compare` recommends which model."""
    times = Counter(row["model"] for row in rows if row["log"] == log and row["recommended"])
    return ", ".join(f"{model} {n}" for model, n in times.most_common())


def loggers_table(rows: list[dict]) -> str:
    """Excess on random lists by logging policy: means over users."""
    logs = list(dict.fromkeys(row["training"] for row in rows))
    lines = [f"| model | {' | '.join(logs)} |", "|---" * (len(logs) + 1) + "|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        means = [np.mean([r["excess"] for r in rows if r["model"] == model and r["training"] == log]) for log in logs]
        lines.append(f"| {model} | {' | '.join(map(short, means))} |")
    return "\n".join(lines)


def neural_table(rows: list[dict]) -> str:
    """Excess with and without a neural member: means over users."""
    lines = ["| model | ind | random | BM25 | fit, CPU s |", "|---|---|---|---|---|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        means = [np.mean([row["excess"][test] for row in own]) for test in ("ind", "random", "BM25")]
        lines.append(f"| {model} | {' | '.join(map(short, means))} | {np.mean([r['fit_seconds'] for r in own]):.2g} |")
    weights = ", ".join(
        f"{row['weights'].get('NCM', 0.0):.2f} with {row['user']} users" for row in rows if "weights" in row
    )
    return "\n".join(lines) + f"\n\nWeight of NCM: {weights}."


def penalty_table(rows: list[dict]) -> str:
    """Clicks of penalised Max-Reward lists."""
    logs = list(dict.fromkeys((row["user"], row["training"]) for row in rows))
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    lines = [f"| log | {' | '.join(policies)} |", "|---" * (len(policies) + 1) + "|"]
    for user, training in logs:
        own = {r["policy"]: r["clicks"] for r in rows if (r["user"], r["training"]) == (user, training)}
        shown = [short(own[p], 3) if p in own else "–" for p in policies]
        lines.append(f"| {user}, {training} | {' | '.join(shown)} |")
    return "\n".join(lines)


def sources_table(results: Mapping[str, Any]) -> str:
    """Parts of the loss on other policies' lists: means by users and model."""
    parts = ("excess", "examination", "attractiveness", "structure")
    lines = [f"| users | model | {' | '.join(parts)} |", "|---" * (len(parts) + 2) + "|"]
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for row in results["rows"]:
        if row["testing"] != "ind":
            groups[row["user"], row["model"]].append(row)
    for (user, model), rows in groups.items():
        means = [np.mean([row[part] for row in rows]) for part in parts]
        lines.append(f"| {user} | {model} | {short(means[0])} | {' | '.join(map(signed, means[1:]))} |")
    return "\n".join(lines)


def short(value: float, digits: int = 4) -> str:
    """A number below 1 without its zero."""
    return f"{value:.{digits}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{digits}f}"


def signed(value: float) -> str:
    """A difference with its sign."""
    return ("+" if value >= 0 else "-") + short(abs(value))


if __name__ == "__main__":
    main()
