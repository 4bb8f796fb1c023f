"""Query files that declare tables and views, and ``explain --check``, which lists all errors."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from circuits import InputOptions, Lateness
from streaming.cli.app import app
from streaming.cli.arguments.checks import Checks
from streaming.cli.arguments.run_options import RunOptions

PROGRAM = """\
CREATE TABLE pay (nr BIGINT PRIMARY KEY, src TEXT NOT NULL, amount DECIMAL(9, 2),
    ts TIMESTAMP LATENESS INTERVAL '5' SECOND)
WITH ('connector' = 'kafka');
CREATE VIEW totals AS SELECT src, sum(amount) AS total FROM pay GROUP BY src;
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "totals.sql"
    path.write_text(PROGRAM)
    return path


def explain(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["explain", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_a_program_is_explained_without_sources(program: Path) -> None:
    status, out, errors = explain(program)
    assert status == 0
    assert "totals" in out and "sum" in out
    assert "note: line 3, column 7: property 'connector' of the table has no effect" in errors


def test_a_declared_table_gives_the_types_of_a_file(program: Path, tmp_path: Path) -> None:
    rows = tmp_path / "pay.csv"
    rows.write_text("nr,src,amount,ts\n1,a,2.50,2026-01-01\n2,a,1,2026-01-01\n")
    status, out, _ = explain(program, "--source", f"pay={rows}", "--analyze", "--json")
    assert status == 0
    assert json.loads(out)["views"]


def test_a_run_uses_columns_and_keys_of_the_program(program: Path) -> None:
    checks = Checks()
    options = RunOptions.of(
        str(program),
        ["pay=in/pay"],
        [],
        explicit=(),
        checks=checks,
        conf=[],
        **dict.fromkeys(
            name
            for name in RunOptions.__dataclass_fields__
            if name not in ("query", "sources", "sinks", "labels", "spark_settings")
        ),
    )
    source = options.sources["pay"]
    assert source.schema() == pa.schema(
        [
            pa.field("nr", pa.int64(), nullable=False),
            pa.field("src", pa.string(), nullable=False),
            ("amount", pa.decimal128(9, 2)),
            ("ts", pa.timestamp("us")),
        ]
    )
    assert source.input_options() == InputOptions(
        keys=("nr",), lateness=Lateness("ts", "5 seconds")
    )
    assert ["connector" in warning for warning in checks.warnings] == [True]


def test_a_check_lists_every_obstacle_with_its_position(tmp_path: Path) -> None:
    path = tmp_path / "wrong.sql"
    path.write_text(
        PROGRAM + "CREATE VIEW v AS\nSELECT frob(src) AS a, zz FROM pay;\nDROP TABLE pay;"
    )
    status, out, _ = explain(path, "--check")
    assert status == 1
    assert "line 6, column 8, v: function frob() is not supported" in out
    assert "line 6, column 24, v: unknown column 'zz'" in out
    assert "line 7, column 1, statement 4: DROP is not supported" in out
    assert "3 obstacles" in out
    status, out, _ = explain(path, "--check", "--json")
    assert status == 1
    result = json.loads(out)["obstacles"]
    assert [
        (obstacle["line"], obstacle["statement"], obstacle["is_fault_of_text"])
        for obstacle in result
    ] == [
        (6, "v", False),
        (6, "v", True),
        (7, "statement 4", False),
    ]


def test_a_check_of_a_valid_file_lists_no_obstacle(program: Path) -> None:
    assert explain(program, "--check")[:2] == (0, "no obstacle in SQL dialect duckdb\n")
    assert explain(program, "--check", "--json")[0] == 0


def test_a_check_uses_the_columns_of_the_sources() -> None:
    status, out, _ = explain("SELECT b FROM e", "--source", "e=schema=a long", "--check")
    assert status == 1
    assert "unknown column 'b'; in FROM: e.a" in out


def test_a_check_reads_sql_only() -> None:
    status, _, errors = explain("p(x) :- q(x).", "--source", "q=schema=x long", "--check")
    assert status == 2
    assert "--check reads SQL" in errors
