"""The benchmark of growth at tiny sizes; its counts equal independent counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer

from benchmarks.growth import __main__ as growth
from benchmarks.growth import dimensions
from benchmarks.growth.edges import BITS, columns, generate_keys, split_keys
from benchmarks.growth.fit import exponent, fit_exponent
from benchmarks.growth.loaded_views import LoadedViews, Steps
from benchmarks.verdict import Verdict

TINY = replace(
    growth.QUICK,
    state=(1_000, 4_000),
    skewed_state=(1_000,),
    state_steps={1: 4, 50: 2},
    other_state=2_000,
    delta_steps={1: 4, 20: 2},
    exponents=(0.0, 1.0),
    views=(1, 4),
    threads_steps={400: 1},
    batch=20,
    steps=3,
)


@pytest.mark.parametrize("skew", [0.0, 0.75, 1.0])
def test_edges_have_the_requested_number_and_are_distinct_loop_free_and_sorted(skew: float) -> None:
    keys = generate_keys(5_000, exponent=skew, seed=3)

    source, target = columns(keys)
    assert len(keys) == 5_000
    assert (np.diff(keys) > 0).all()
    assert (source != target).all()
    assert max(source.max(), target.max()) < 5_000 // 8
    assert np.array_equal(keys, generate_keys(5_000, exponent=skew, seed=3))


def test_a_larger_exponent_makes_larger_hubs_with_distant_numbers() -> None:
    degrees = [
        np.bincount(generate_keys(20_000, exponent=skew, seed=1) >> BITS)
        for skew in (0.0, 0.5, 1.0)
    ]

    largest = [degree.max() for degree in degrees]
    hubs = np.sort(np.argsort(degrees[2])[-2:])
    assert largest == sorted(largest)
    assert largest[2] > 5 * largest[0]
    assert hubs[1] - hubs[0] > 1


def test_streamed_keys_are_not_in_the_loaded_state() -> None:
    keys = generate_keys(1_000, exponent=0.5, seed=1)

    loaded, streamed = split_keys(keys, 100, seed=2)

    assert sorted([*loaded.tolist(), *streamed.tolist()]) == keys.tolist()
    assert len(streamed) == 100
    assert (np.diff(loaded) > 0).all()


def test_an_exponent_is_the_power_that_the_cost_grows_with() -> None:
    sizes = [10.0, 100.0, 1000.0]

    assert exponent(sizes, [2 * x**0.5 for x in sizes]) == (0.5, 1.0)
    assert fit_exponent("a", [{"n": 1, "ms": None}], "n", "ms")["exponent"] is None


def test_every_part_is_measured_and_every_answer_compared(tmp_path: Path) -> None:
    path = tmp_path / "growth.json"

    growth.measure(TINY, part=list(growth.PARTS), max_rows=10**9, seed=0, json=path)

    tables = json.loads(path.read_text())["tables"]
    assert set(tables) == {"State", "Delta", "Skew", "Views", "Threads", "Growth exponents"}
    assert [row["rows"] for row in tables["State"]] == [1_000] * 2 + [4_000] * 2 + [1_000] * 2
    one_view, four_views = tables["Views"]
    assert one_view["MB"] == four_views["MB"], "views share arrangements"
    assert all(row["met"] is None for row in tables["State"]), "the target is for larger states"


def test_growth_is_reported_relative_to_a_base_with_its_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dimensions, "BASE_ROWS", 1_000)
    base, larger = dimensions.measure_by_state(
        (1_000, 4_000), {20: 2}, skew=0.0, setting=dimensions.Setting(0, Verdict(), print)
    )

    assert (base["growth"], base["met"]) == (1.0, None)
    assert larger["met"] == (float(larger["growth"] or 0) <= 2.0)


def test_a_change_that_does_not_cancel_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    insert_and_delete = LoadedViews.insert_and_delete

    def wrong(views: LoadedViews, keys: np.ndarray, batch: int, steps: int) -> Steps:
        return replace(insert_and_delete(views, keys, batch, steps), change=1)

    monkeypatch.setattr(LoadedViews, "insert_and_delete", wrong)

    with pytest.raises(typer.Exit) as stop:
        growth.measure(TINY, part=["delta"], max_rows=10**9, seed=0, json=None)

    assert stop.value.exit_code == 1


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="unknown part 'size'; choose from state, delta"):
        growth.main(part=["size"])
