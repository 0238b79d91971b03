"""Where the loss of classical click models under policy shift comes from: the rows of docs/robust-models.md.

python benchmarks/loss_sources.py                 # quick scale
python benchmarks/loss_sources.py --scale paper
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import clickshift as cs
from clickshift.errors import ClickshiftWarning

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="quick")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ClickshiftWarning)
    result = cs.loss_sources(scale=options.scale)
    rows = [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in result.rows()]
    text = ",\n".join(json.dumps(row) for row in rows)
    scale = json.dumps(options.scale)
    (HERE / "results" / "loss_sources.json").write_text(
        f'{{"scale": {scale}, "rows": [\n{text}\n]}}\n', encoding="utf-8"
    )
    print(result.conclusion)


if __name__ == "__main__":
    main()
