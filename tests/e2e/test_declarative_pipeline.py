"""A flow of a declarative pipeline of Spark writes into views, run by the command of Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming import Database

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "read-views.md"
COMPLETED = "Run is COMPLETED"


def files_of_the_page():
    """Return the files that the section of the page shows: each begins with its name."""
    section = (
        PAGE.read_text("utf-8").split("## Declarative pipelines of Spark")[1].split("\n## ")[0]
    )
    blocks = re.findall(r"```\w+\n(?:#|--) (\S+)\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    return dict(blocks)


def run_pipeline(folder):
    command = Path(sys.executable).with_name("spark-pipelines")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    finished = subprocess.run(
        [command, "run", "--conf", "spark.ui.enabled=false"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    output = finished.stdout + finished.stderr
    assert COMPLETED in output, output[-5000:]
    if finished.returncode:  # see the page
        assert "[UNKNOWN_RESPONSE]" in output.split(COMPLETED)[1], output[-5000:]


@pytest.mark.slow
@pytest.mark.spark
def test_a_flow_writes_into_views_and_continues_in_the_next_run(tmp_path):
    for name, text in files_of_the_page().items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("/data", str(tmp_path)))
    (tmp_path / "visits").mkdir()
    for number, visits in enumerate([[("home", 1), ("home", 2), ("shop", 2)], [("shop", 3)]]):
        pages, visitors = zip(*visits, strict=True)
        rows = pa.table({"page": pages, "visitor": visitors})
        pq.write_table(rows, tmp_path / "visits" / f"{number}.parquet")
        run_pipeline(tmp_path)
        with Database(path=str(tmp_path / "site")) as database:
            rows = database.view("pages").to_arrow().to_pylist()
        assert {row["page"]: row["visitors"] for row in rows} == {"home": 2, "shop": 1 + number}
