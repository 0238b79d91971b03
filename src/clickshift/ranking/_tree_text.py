"""LightGBM's model text, rebuilt from checked numbers: LightGBM reads damaged text without checks."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

_NODES = {"split_feature": int, "split_gain": float, "threshold": float, "decision_type": int}
_CHILDREN = {"left_child": int, "right_child": int}
_LEAVES = {"leaf_value": float, "leaf_weight": float, "leaf_count": int}
_INNER = {"internal_value": float, "internal_weight": float, "internal_count": int}
_FIELDS = _NODES | _CHILDREN | _LEAVES | _INNER
"""Fields of a tree with one number per leaf ("leaf_...") or per node, in LightGBM's order."""
_NEEDED = {"split_feature", "threshold", "decision_type", "left_child", "right_child", "leaf_value"}
"""Fields that determine scores. The others are for importances; a tree of one leaf may lack them."""
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,30})?(e[+-]?\d{1,3})?")
_INFO = re.compile(rf"none|\[{_NUMBER.pattern}:{_NUMBER.pattern}\]")
_DECISIONS = (0, 2, 4, 6, 8, 10)
"""Numerical splits: missing values go left or right (2), and are none, zeros (4) or NaNs (8)."""
_MAX_VALUE = 1e100
"""Largest size of a leaf's value, so that sums are finite."""


def checked_tree_text(text: str, n_features: int) -> str:
    """Return LightGBM's model text of the trees of a text, after a check of every number; settings are left out.

    Parameters
    ----------
    text
        Model text of a ranker with one score per document.
    n_features
        Number of features that a document must have.

    Raises
    ------
    ValueError
        If LightGBM could not use the trees: it follows numbers of nodes and features without checks.
    """
    head, *trees = text.partition("\nend of trees")[0].split("\nTree=")
    fields = _fields(head)
    infos = fields["feature_infos"].split()
    if len(infos) != n_features or not all(_INFO.fullmatch(info) for info in infos):
        raise ValueError(f"there must be a range of values for each of {n_features} features")
    if not trees:
        raise ValueError("there must be a tree")
    blocks = [f"Tree={k}\n{_checked_tree(_fields(tree), n_features)}\n\n\n" for k, tree in enumerate(trees)]
    lines = [
        *("tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"),
        *(f"max_feature_idx={n_features - 1}", "objective=lambdarank"),
        f"feature_names={' '.join(f'Column_{k}' for k in range(n_features))}",
        f"feature_infos={' '.join(infos)}",
        f"tree_sizes={' '.join(str(len(block)) for block in blocks)}",
    ]
    return "\n".join(lines) + "\n\n" + "".join(blocks) + "end of trees\n\npandas_categorical:null\n"


def _fields(text: str) -> dict[str, str]:
    """Read lines of the form name=value."""
    return dict(line.partition("=")[::2] for line in text.splitlines())


def _checked_tree(fields: Mapping[str, str], n_features: int) -> str:
    """Return the lines of a tree."""
    leaves = int(fields["num_leaves"])
    if leaves < 1 or fields.get("num_cat", "0") != "0" or fields.get("is_linear", "0") != "0":
        raise ValueError("a tree must have leaves with constant values, and numerical splits")
    values = {name: _numbers(fields, name, leaves) for name in _FIELDS if name in fields or name in _NEEDED}
    if np.abs(values["leaf_value"]).max() > _MAX_VALUE:
        raise ValueError(f"values of leaves must be within {_MAX_VALUE:g}")
    if leaves > 1:
        _check_nodes(values["split_feature"], values["decision_type"], n_features)
        _check_children(values["left_child"], values["right_child"])
    lines = [f"{name}={' '.join(fields[name].split())}" for name in values]
    shrinkage = fields.get("shrinkage", "1")
    if not _NUMBER.fullmatch(shrinkage):
        raise ValueError(f"shrinkage must be a number, not {shrinkage!r}")
    return "\n".join((f"num_leaves={leaves}", "num_cat=0", *lines, "is_linear=0", f"shrinkage={shrinkage}"))


def _numbers(fields: Mapping[str, str], name: str, leaves: int) -> np.ndarray:
    """Read the numbers of a field: one per leaf or node."""
    words, size = fields[name].split(), leaves if name.startswith("leaf_") else leaves - 1
    if len(words) != size and (words or name in _NEEDED):
        raise ValueError(f"{name} must have {size} numbers, not {len(words)}")
    if not all(_NUMBER.fullmatch(word) for word in words):
        raise ValueError(f"{name} must be numbers")
    values = np.array(words, np.float64)
    whole = _FIELDS[name] is int
    if not np.isfinite(values).all() or (whole and (np.abs(values) >= 2**31).any()):
        raise ValueError(f"{name} must be finite numbers{', below 2^31' if whole else ''}")
    return np.array(words, np.int64) if whole else values


def _check_nodes(feature: Int[np.ndarray, " node"], decision: Int[np.ndarray, " node"], n_features: int) -> None:
    """Check that splits are on features that exist, and numerical."""
    if (feature < 0).any() or (feature >= n_features).any():
        raise ValueError(f"a split must be on one of {n_features} features")
    if not np.isin(decision, _DECISIONS).all():
        raise ValueError("a split must be numerical")


def _check_children(left: Int[np.ndarray, " node"], right: Int[np.ndarray, " node"]) -> None:
    """Check that the nodes form a tree: each comes before its children, and each but the root is the child of one."""
    node = np.arange(len(left))
    for child in (left, right):  # negative numbers are leaves
        if ((child >= 0) & (child <= node)).any():
            raise ValueError("a node must come before its children")
    expected = np.concatenate([np.arange(-len(left) - 1, 0), node[1:]])
    if not np.array_equal(np.sort(np.concatenate([left, right])), expected):
        raise ValueError("every node but the first, and every leaf, must be the child of one node")
