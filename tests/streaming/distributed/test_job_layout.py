"""Where stages and views run in the job of a micro-batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import compile_sql
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.planning.grid import Grid, HeavyGroup
from streaming.distributed.planning.grid_planning import stage_grid
from streaming.distributed.planning.job_layout import JobLayout, plan_job
from streaming.distributed.planning.shares import Shares

SCHEMAS = {
    "e": pa.schema([("src", pa.int64()), ("dst", pa.int64())]),
    "p": pa.schema([("id", pa.int64()), ("name", pa.string())]),
}


def layout_of(views: str, cells: int = 4) -> JobLayout:
    stages = circuit_stages(compile_sql(views, SCHEMAS))
    return plan_job(stages, tuple(stage_grid(stage, cells) for stage in stages.stages))


def test_each_view_is_written_as_early_as_its_rows_are_there():
    layout = layout_of("""
        CREATE VIEW loops AS SELECT src FROM e WHERE src = dst;
        CREATE VIEW pairs AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;
        CREATE VIEW named AS SELECT e.src, e.dst, p.name FROM e JOIN p ON e.dst = p.id;
        CREATE VIEW totals AS SELECT name, count(*) AS n FROM named GROUP BY name;
        CREATE VIEW edges AS SELECT count(*) AS n FROM e x JOIN e y ON x.dst = y.src
    """)

    assert layout.exchanged_views == {"loops": 1, "pairs": 2}
    assert layout.local_views == {"named", "totals"}
    assert layout.driver_views == {"edges"}
    assert sorted(level or 0 for level in layout.levels) == [0, 1, 1, 1, 2]
    assert layout.last_level == 2


def test_sums_of_all_rows_of_a_join_run_in_the_driver():
    layout = layout_of("""
        CREATE VIEW v AS SELECT sum(x.src) AS s, count(*) AS n FROM e x JOIN e y ON x.dst = y.src;
        CREATE VIEW w AS SELECT sum(src * dst) AS s, avg(id) AS a FROM e JOIN p ON e.dst = p.id
    """)

    assert layout.driver_views == {"v", "w"}
    assert layout.last_level == 1


@pytest.mark.parametrize(
    "select, is_local",
    [
        ("SELECT e.dst, p.name FROM e JOIN p ON e.dst = p.id", True),
        ("SELECT p.id, p.name FROM e JOIN p ON e.dst = p.id WHERE p.name > 'a'", True),
        ("SELECT e.dst + 1 AS next, p.name FROM e JOIN p ON e.dst = p.id", False),
        ("SELECT e.src, p.name FROM e JOIN p ON e.dst = p.id", False),
        ("SELECT src, count(*) AS n FROM e GROUP BY src", True),
        ("SELECT count(*) AS n FROM e GROUP BY src", False),
        ("SELECT src, sum(dst) AS s FROM e GROUP BY src", True),
        ("SELECT x.src, avg(y.dst) AS a FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src", True),
        ("SELECT src, dst, count(*) AS n FROM e GROUP BY src, dst", True),
        ("SELECT src, count(*) AS n FROM e GROUP BY src, dst", False),
        ("SELECT DISTINCT src, dst FROM e", True),
        ("SELECT src FROM (SELECT DISTINCT src, dst FROM e) AS pairs", False),
        ("SELECT src FROM e UNION ALL SELECT id FROM p", False),
    ],
)
def test_a_view_is_local_if_its_rows_determine_their_cell(select: str, is_local: bool):
    view = f"CREATE VIEW v AS {select}"
    assert (layout_of(view).local_views == {"v"}) == is_local
    if " UNION " not in select:
        assert layout_of(view, cells=1).local_views == {"v"}


def test_a_join_that_splits_heavy_values_has_no_local_views():
    stages = circuit_stages(
        compile_sql(
            "CREATE VIEW v AS SELECT e.src, e.dst, p.name FROM e JOIN p ON e.dst = p.id", SCHEMAS
        )
    )
    (stage,) = stages.stages
    shares = Shares(stage.atoms, {"v0": 1, "v1": 4, "v2": 1})
    heavy = HeavyGroup("v1", (2, 2), (77,))

    assert plan_job(stages, (Grid(shares),)).local_views == {"v"}
    assert plan_job(stages, (Grid(shares, (heavy,)),)).exchanged_views == {"v": 2}
