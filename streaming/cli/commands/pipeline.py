"""The sub-command ``pipeline``: refresh views over tables, or say how they are refreshed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from circuits import Circuit
from dbsp_wcoj import DbspWcojError
from streaming.cli.arguments.checks import ProblemsError
from streaming.cli.arguments.pipeline_file import read_pipeline
from streaming.cli.command import error_message
from streaming.cli.streaming_query import parse_interval
from streaming.cli.terminal.display import console, plural, print_json, show_compilation
from streaming.errors import EventsError, FailedError
from streaming.pipeline.definition import CompiledPipeline, PipelineDefinition
from streaming.pipeline.pipeline import Pipeline, Refresh
from streaming.ui.drawing import Drawing

__all__ = ["pipeline"]

ACTIONS: Final = ("refresh", "run", "explain", "check")
SECONDS: Final = {
    "milliseconds": 0.001,
    "seconds": 1.0,
    "minutes": 60.0,
    "hours": 3600.0,
    "days": 86400.0,
}
#: Operators that do not say how a view is refreshed.
PLAIN_OPERATORS: Final = ("map", "filter")


def pipeline(
    *, action: str, file: Path, every: str | None, plan: bool, allow_drop: bool, json: bool
) -> None:
    """Refresh views over tables, or say how they are refreshed."""
    if action not in ACTIONS:
        raise EventsError(f"{action!r} is not an action of pipeline: write {', '.join(ACTIONS)}")
    if every is not None and action != "run":
        raise EventsError(f"--every is the pause of pipeline run: {action} has none, so remove it")
    if plan and action != "explain":
        raise EventsError(f"--plan is for pipeline explain: {action} shows no plan, so remove it")
    with show_compilation(console(stderr=True)):
        _perform(action, file, every=every, plan=plan, allow_drop=allow_drop, json=json)


def _perform(
    action: str, file: Path, *, every: str | None, plan: bool, allow_drop: bool, json: bool
) -> None:
    contents = read_pipeline(file)
    definition = contents.definition
    if action == "check":
        _check(file, definition, json=json)
    elif action == "explain":
        with _report_all_problems(definition):
            compiled = definition.compile()
        _explain(compiled, is_whole=plan, json=json)
    else:
        count, unit = parse_interval(every or contents.every).split()
        pause = float(count) * SECONDS[unit]
        with _report_all_problems(definition):
            pipeline = Pipeline(definition, allow_drop=allow_drop)
        with pipeline as opened:
            while True:
                _show_refresh(_refresh(opened), json=json)
                if action == "refresh":
                    return
                time.sleep(pause)


@contextmanager
def _report_all_problems(definition: PipelineDefinition) -> Iterator[None]:
    """Raise all problems of the files and tables if the first of them is raised.

    The search for all problems plans the views a second time, so a correct pipeline goes without.

    Raises:
        ProblemsError: The error is one of several problems, or the only one.
        DbspWcojError, OSError: The error is no problem of the files and tables.
    """
    try:
        yield
    except (DbspWcojError, OSError):
        if problems := definition.find_problems():
            raise ProblemsError(problems) from None
        raise


def _refresh(opened: Pipeline) -> Refresh:
    """Refresh a pipeline.

    Raises:
        FailedError: The refresh failed, and something has been written.
        DbspWcojError, OSError: The refresh failed, and nothing has been done.
    """
    try:
        return opened.refresh()
    except (DbspWcojError, OSError) as error:
        if opened.has_written:
            raise FailedError(error_message(error)) from error
        raise


def _check(file: Path, definition: PipelineDefinition, *, json: bool) -> None:
    with _report_all_problems(definition):
        circuit = definition.compile().circuit
    definition.outputs(circuit)
    if json:
        files = [str(path) for path in definition.files.files]
        tables, views = sorted(definition.tables), list(circuit.outputs)
        print_json({"ok": True, "files": files, "tables": tables, "views": views})
        return
    console().print(
        f"{file}: {plural(len(definition.files.files), 'file')} of SQL, "
        f"{plural(len(definition.tables), 'source table')}, "
        f"{plural(len(circuit.outputs), 'view')}; no problem",
        style="good",
        soft_wrap=True,
    )


def _explain(compiled: CompiledPipeline, *, is_whole: bool, json: bool) -> None:
    circuit, recomputed = compiled.circuit, compiled.recomputed
    plans = {
        view: operators_of(circuit, view) for view in circuit.outputs if view not in recomputed
    }
    if json:
        described: dict[str, Any] = {
            view: {"refresh": "incremental", "plan": plan} for view, plan in plans.items()
        }
        for name, view in recomputed.items():
            reads = list(view.reads)
            described[name] = {"refresh": "recomputed", "reason": view.reason, "reads": reads}
        print_json(described)
        return
    for name, operators in plans.items():
        console().print(f"{name}: incremental", style="name", soft_wrap=True)
        for operator in operators:
            console().print(f"  {operator}", markup=False, soft_wrap=True)
    for name, view in recomputed.items():
        console().print(f"{name}: recomputed by Spark", style="name", soft_wrap=True)
        console().print(f"  because of {view.reason}", markup=False, soft_wrap=True)
        console().print(f"  reads {', '.join(view.reads)}", markup=False, soft_wrap=True)
    if is_whole:
        console().print("\n" + circuit.explain(), markup=False, soft_wrap=True)


def operators_of(circuit: Circuit, view: str) -> list[str]:
    """Return the operators between a view and the tables and views that it reads."""
    picture: dict[str, Any] = Drawing.of(circuit).picture
    boxes = picture["boxes"]
    operator_of = {box["name"]: box["operator"] for box in boxes if box["kind"] == "view"}
    operator_of = {name: operator_of[name] for name in circuit.outputs}
    others = {number: name for name, number in operator_of.items() if name != view}
    operators: list[str] = []
    pending, seen = [operator_of[view]], set()
    while pending:
        number = pending.pop()
        if number in seen:
            continue
        seen.add(number)
        box = boxes[number]
        if number in others and number != operator_of[view]:
            operators.append(f"view {others[number]}")
        elif box["kind"] not in PLAIN_OPERATORS:
            operators.append(box["label"])
        if number not in others or number == operator_of[view]:
            pending += [line["from"] for line in picture["lines"] if line["to"] == number]
    return operators


def _show_refresh(refresh: Refresh, *, json: bool) -> None:
    if json:
        print_json(
            {
                "refresh": refresh.number,
                "read": {
                    name: {"method": method, "rows": rows}
                    for name, (method, rows) in refresh.read.items()
                },
                "recomputed": list(refresh.recomputed),
                "written": dict(refresh.written),
            }
        )
        return
    out = console()
    if refresh.number is None:
        out.print("nothing has changed", style="note")
        return
    out.print(f"refresh {refresh.number:,}", style="name")
    for name, (method, rows) in refresh.read.items():
        out.print(f"  read     {name}: {plural(rows, 'row')} ({method})", soft_wrap=True)
    for view in refresh.recomputed:
        out.print(f"  computed {view}: by Spark", soft_wrap=True)
    for view, rows in refresh.written.items():
        out.print(f"  written  {view}: {plural(rows, 'row')}", soft_wrap=True)
