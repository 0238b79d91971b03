"""Tables of one's own in the policy-shift protocol: scores of rankers as policies, and frequencies of queries."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clickshift.core.files import content_key
from clickshift.core.spec import key
from clickshift.errors import SpecError
from clickshift.experiments._audit_scores import named_scores
from clickshift.io.frames import read_source
from clickshift.io.table_writer import write_table
from clickshift.policies import POLICIES
from clickshift.policies.plackett_luce import PlackettLuce
from clickshift.policies.score_file import ScoreFile
from clickshift.simulation.search_engine import Named, World, named_specs

__all__ = ["OwnScores", "TableLike", "with_query_counts"]

TableLike = str | Path | Any  # Any: data frames
"""A table: a file (Parquet, CSV or JSON lines), or a data frame."""


@dataclass(frozen=True)
class OwnScores:
    """Tables of scores as policies, by name.

    Parameters
    ----------
    files
        Policy of each table.
    """

    files: Mapping[str, ScoreFile]

    @classmethod
    def of(cls, scores: TableLike | Sequence[TableLike] | Mapping[str, TableLike] | None, folder: Path) -> OwnScores:
        """Describe tables of scores, named by their files or as "NAME=FILE"; write those in memory to a folder.

        Parameters
        ----------
        scores
            One table with the columns query, doc and score, several, or several by name; None for none.
        folder
            Folder for tables in memory.

        Raises
        ------
        SpecError
            "bad-option" for a name that is no identifier, or is that of a policy.
        DataError
            "duplicate-name" if two tables have the same name.
        FileError
            If a file cannot be read.
        """
        files = {}
        for name, table in named_scores(scores).items():
            known = {*POLICIES, *dict(World.testing)}
            if not name.isidentifier() or name in known:
                raise SpecError(
                    f"a name of scores must have letters, digits and _ only, and must not be that of a policy: got "
                    f"{name!r}. Name them: my_ranker=FILE.",
                    code="bad-option",
                    option="scores",
                    value=name,
                )
            path = _on_disk(table, folder / f"scores {name}.parquet")
            files[name] = ScoreFile(content_key([path]), path=str(path))
        return cls(files)

    def named(self, texts: Sequence[str], known: Named) -> Named:
        """Name the specifications that a caller gave, as `named_specs` does; names of scores stand for their files.

        NAME ranks by the scores, PL-NAME is a Plackett-Luce policy as that of the paper's LambdaMART.

        Parameters
        ----------
        texts
            Names of known specifications, or specifications.
        known
            Specifications by name.
        """
        own = [(name, key(file)) for name, file in self.files.items()]
        own += [(f"PL-{name}", key(PlackettLuce(file, 0.1, "log"))) for name, file in self.files.items()]
        return tuple(
            (text, " + ".join(map(self._with_files, spec.split(" + "))))
            for text, spec in named_specs(texts, (*known, *own), POLICIES)
        )

    def unused(self, texts: Sequence[str]) -> list[str]:
        """Return the names of scores that no specification mentions."""
        mentioned = {name for text in texts for part in text.split(" + ") for name in _names(part.removeprefix("PL-"))}
        return [name for name in self.files if name not in mentioned]

    def in_world(self, world: World) -> World:
        """Return the world with the paths of the files, once every candidate is known to have a score.

        Raises
        ------
        FileError
            Those of `ScoreFile`, e.g. "missing-score" if a candidate of the corpus has no score.
        """
        if not self.files:
            return world
        world = replace(world, tables=(*world.tables, *((file.content, file.path) for file in self.files.values())))
        for file in self.files.values():
            world.ranker(key(file))
        return world

    def _with_files(self, text: str) -> str:
        """Replace the names of scores in a specification; a text that cannot be parsed is returned as it is."""
        if not self.files or not self.files.keys() & set(_names(text)):
            return text
        return ast.unparse(_Files(self.files).visit(ast.parse(text.strip(), mode="eval")))


class _Files(ast.NodeTransformer):
    """Replacement of names of scores by their files."""

    def __init__(self, files: Mapping[str, ScoreFile]) -> None:
        self._files = files

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the file of a name of scores."""
        file = self._files.get(node.id)
        return node if file is None else ast.parse(key(file), mode="eval").body


def _names(text: str) -> list[str]:
    """Return the names in a specification; none if it cannot be parsed."""
    try:
        return [node.id for node in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(node, ast.Name)]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []


def with_query_counts(world: World, counts: TableLike | None, folder: Path) -> World:
    """Return the world with queries as frequent as in a table with the columns query and count.

    Parameters
    ----------
    world
        The simulated search engine, with its corpus.
    counts
        A table on disk, or a data frame, which is written to the folder; None leaves the world as it is.
    folder
        Folder for a table in memory.

    Raises
    ------
    FileError
        Those of `read_query_counts`, for the queries of the corpus.
    """
    if counts is None:
        return world
    path = _on_disk(counts, folder / "query counts.parquet")
    content = content_key([path])
    world = replace(world, query_counts=content, tables=(*world.tables, (content, str(path))))
    world.query_distribution()  # reads the table, so that its errors are raised before any work
    return world


def _on_disk(table: TableLike, path: Path) -> Path:
    """Return the path of a table; one that is in memory is written for other processes first."""
    if isinstance(table, str | Path):
        return Path(table).absolute()
    columns = read_source(table, lambda _, names: {name: name for name in names}).table
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(columns, path)
    return path.absolute()
