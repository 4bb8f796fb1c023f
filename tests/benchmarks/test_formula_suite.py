"""The comparison of the formulas: its shapes, cases and tables, and a quick run."""

from __future__ import annotations

import doctest
import importlib
import json
from collections import Counter
from pathlib import Path

import pytest
import typer

from benchmarks import formulas
from benchmarks.formulas import contest, matrix, tables
from benchmarks.formulas.__main__ import main
from benchmarks.formulas.claim import compare_claims
from benchmarks.formulas.shape import query_text
from benchmarks.verdict import Verdict
from dbsp_wcoj import Formula, Query

MODULES = sorted(path.stem for path in Path(formulas.__file__).parent.glob("[a-z]*.py"))


def row(formula, ms, *, shape="path", n=5, batch=1000, ratio=1.0, work=500.0, joins=20.0):
    """Return a row of a contest; ``ratio`` is the time by that of the fastest formula."""
    return {
        "shape": shape,
        "n": n,
        "changed": "all",
        "data": "uniform",
        "rows": 9,
        "batch": batch,
        "formula": formula,
        "joins/step": joins,
        "proposals/step": work,
        "intersections/step": work,
        "ms/step p50": ms,
        "ratio to the fastest": None if ms is None else ratio,
        "stopped": ms is None,
    }


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_the_docstrings_hold(module):
    failures, _ = doctest.testmod(importlib.import_module(f"benchmarks.formulas.{module}"))

    assert not failures


@pytest.mark.parametrize(("shape", "n", "variables"), [("star", 8, 9), ("clique", 10, 5)])
def test_a_shape_has_its_atoms_and_variables(shape, n, variables):
    query = Query.parse(query_text(shape, n, selfjoin=False))

    assert (len(query.body), len(query.variables)) == (n, variables)
    assert len(query.relations) == n


def test_the_cases_have_all_shapes_numbers_of_atoms_and_batch_sizes():
    sizes = {(case.shape, case.n) for case in matrix.cases()}

    assert {n for shape, n in sizes if shape in ("star", "path")} == set(range(2, 9))
    assert {n for shape, n in sizes if shape == "cycle"} == set(range(3, 9))
    assert {n for shape, n in sizes if shape == "clique"} == {3, 6, 10}
    assert {batch for case in matrix.cases() for batch in case.batches} >= {
        1,
        10,
        100,
        1_000,
        100_000,
    }


def test_all_formulas_and_the_choice_agree_in_a_quick_run(tmp_path, capsys):
    path = tmp_path / "formulas.json"

    main(quick=True, json=path)

    result_tables = json.loads(path.read_text())["tables"]
    quick = matrix.cases(quick=True)
    steps = Counter((case.shape, batch) for case in quick for batch in case.batches)
    case_counts = {
        (row["shape"], row["batch"], row["formula"]): row["cases"]
        for row in result_tables["Ratios by batch"]
    }
    assert case_counts == {
        (*key, name): cases for key, cases in steps.items() for name in (*Formula, "auto")
    }
    assert sum(row["cases"] for row in result_tables["Ratios by atoms"]) == 7 * steps.total()
    assert len(result_tables["Times by atoms"]) == 7 * 4
    assert all(result_tables[name] for name in ("Verdict", "Choice", "Crossover", "Times"))
    assert "0 differ" in capsys.readouterr().out


def test_an_unknown_shape_is_refused():
    with pytest.raises(
        typer.BadParameter, match="unknown shape 'ring'; choose from star, path, cycle, clique"
    ):
        main(quick=True, shape=["ring"])


def test_a_formula_that_would_take_too_long_is_reported_as_stopped(monkeypatch):
    monkeypatch.setattr(contest, "STEP_LIMIT_S", 0.0)
    case = contest.Case("path", 3, "all", "uniform", 6, 100, (1, 5))

    rows = list(contest.run_contest(case, ("collapsed", "recursive"), Verdict()))

    assert [(row["batch"], row["stopped"]) for row in rows] == [
        (1, False),
        (1, False),
        (5, True),
        (5, True),
    ]
    assert rows[-1]["ms/step p50"] is None


def test_the_crossover_is_the_n_from_which_on_a_recursion_stays_faster():
    # By n: milliseconds of `collapsed` and of `recursive`.
    times = {3: (1.0, 0.5), 4: (1.0, 1.2), 5: (1.0, 0.8), 6: (None, 3.0)}
    rows = [
        row(name, ms, n=n, joins=joins)
        for n, (collapsed_ms, recursive_ms) in times.items()
        for name, ms, joins in (
            ("collapsed", collapsed_ms, 20.0),
            ("recursive", recursive_ms, 18.0),
        )
    ]

    (crossover,) = tables.crossover_table(rows)

    assert crossover["faster from n, uniform"] == 5
    assert crossover["faster from n, skewed"] == "never"
    assert crossover["measured n"] == "3, 4, 5, 6"


def test_the_worst_choice_is_first_and_each_is_compared_with_its_target():
    rows = [row("collapsed", 1.0), row("auto", 1.2, ratio=1.2)]
    rows += [row("collapsed", 1.0, n=6), row("auto", 1.05, n=6, ratio=1.05)]

    choices = tables.worst_choices(rows)

    assert [(choice["n"], choice["met"]) for choice in choices] == [(5, False), (6, True)]


def test_the_claims_are_compared_with_the_cases_in_which_a_recursion_is_faster():
    rows = [row("collapsed", 2.0), row("recursive", 1.0)]
    rows += [row("collapsed", 1.0, batch=1), row("recursive", 2.0, batch=1)]

    text = " ".join(str(claim["measured"]) for claim in compare_claims(rows))

    assert "path: a recursion is faster in 1 of 2 cases (with 5 relations), by up to 2" in text
    assert "about 1,000 or more proposals" in text
    assert "of 2 cases of 5 and more atoms `collapsed` is as fast" in text
