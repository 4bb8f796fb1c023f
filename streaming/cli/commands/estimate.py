"""The sub-command ``estimate``: memory and step time of views over the planned number of rows.

It runs the views over samples of several sizes, and extrapolates the size of each arrangement and
dictionary: by a power law, or by the number of distinct values of the columns that it has. So the
plan, the skew of a sample and the bytes per row are those of the engine itself; there is no model
of the engine that could differ from it.

Alternative considered: cardinalities from statistics, as a query optimizer computes them. They are
off by orders of magnitude for joins of several relations, and each operator would need a formula.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from circuits import Circuit
from streaming.cli.arguments.source import SourceArgument, parse_sources, read_rows
from streaming.cli.arguments.views import (
    compile_query,
    declarations_of,
    with_declarations,
    without_weight,
)
from streaming.cli.estimation.measure import Estimate, Measurement, estimate_parts, measure
from streaming.cli.estimation.samples import PlannedInput, Samples
from streaming.cli.terminal.display import (
    amount,
    console,
    milliseconds,
    plain_table,
    plural,
    print_json,
    show_compilation,
    size,
)
from streaming.errors import EventsError

__all__ = ["estimate", "measure_samples"]

#: The sizes of the samples, as fractions of the largest one.
SAMPLE_SIZES: Final = (0.25, 0.35, 0.5, 0.7, 1.0)
STEPS: Final = 5
#: At least this number of rows for each value of a column that is not reduced in a sample.
ROWS_PER_VALUE: Final = 3
#: Memory that a load in one step needs, as a multiple of the state.
LOAD_FACTOR: Final = 3
#: The limits of the total are shown if they differ by more than this factor.
MAX_UNCERTAINTY: Final = 1.5
_ROWS: Final = re.compile(r"(?P<name>.+)=(?P<number>[0-9][0-9_]*(\.[0-9]+)?([eE]\+?[0-9]+)?)")


def estimate(
    *,
    query: str,
    source: list[str] | None,
    rows: list[str] | None,
    distinct: list[str] | None,
    materialize: list[str] | None,
    batch: int,
    sample: int,
    dialect: str,
    functions: str | None,
    formula: str,
    seed: int,
    json: bool,
) -> None:
    """Print the estimate."""
    declarations = declarations_of(query, dialect)
    sources = with_declarations(parse_sources(source) if source else {}, declarations)
    schemas = {name: argument.schema() for name, argument in sources.items()}
    for name, schema in schemas.items():
        if schema is None:
            raise EventsError(
                f"--source {name}: only Spark knows its columns: add schema=src long, dst long"
            )
    input_options = {name: argument.input_options() for name, argument in sources.items()}
    compile_views = partial(
        compile_query,
        query,
        {name: without_weight(schema) for name, schema in schemas.items()},
        dialect=dialect,
        functions=functions,
        formula=formula,
        input_options={name: value for name, value in input_options.items() if value is not None},
        materialize=materialize or (),
    )
    inputs = _planned_inputs(compile_views(), sources, rows or [], distinct or [])
    with show_compilation(console(stderr=True)):
        measurements = measure_samples(compile_views, inputs, batch=batch, sample=sample, seed=seed)
    result = estimate_parts(measurements)
    if json:
        planned_rows = {name: planned.rows for name, planned in inputs.items()}
        print_json({"rows": planned_rows, "step_rows": batch, **result.to_json()})
    else:
        _show(result, inputs, measurements[-1], batch, console())


def measure_samples(
    compile_views: Any,
    inputs: Mapping[str, PlannedInput],
    *,
    batch: int,
    sample: int,
    seed: int = 0,
) -> list[Measurement]:
    """Run the views over samples of ascending sizes.

    Args:
        compile_views: Returns the circuit without state.
        inputs: The inputs with their planned rows.
        batch: The rows of a step.
        sample: The rows of the largest input in the largest sample.
        seed: The seed of generated rows.
    """
    few = int(sample * SAMPLE_SIZES[0] / ROWS_PER_VALUE)
    samples = Samples(inputs, max_rows=sample, few=few, seed=seed)
    measurements = []
    for share in SAMPLE_SIZES:
        fraction = share * samples.max_fraction
        circuit: Circuit = compile_views()
        steps = [samples.step(fraction, batch) for _ in range(STEPS)]
        tables = samples.tables(fraction)
        measurements.append(measure(circuit, fraction, tables, steps, samples.sampled))
    return measurements


def _planned_inputs(
    circuit: Circuit,
    sources: Mapping[str, SourceArgument],
    rows: list[str],
    distinct: list[str],
) -> dict[str, PlannedInput]:
    """Combine the options into the inputs.

    Raises:
        EventsError: An option names an unknown relation or column, or a number is missing.
    """
    numbers = _numbers("--rows", rows)
    distinct_numbers = _numbers("--distinct", distinct)
    inputs = {}
    for name, schema in circuit.inputs.items():
        argument, columns = sources.get(name), without_weight(schema.arrow)
        table = None
        if argument is not None and argument.path is not None:
            table = read_rows(argument).select(columns.names)
        count = numbers.pop(name, None)
        if count is None and table is None:
            raise EventsError(f"--rows {name}=NUMBER is missing: how many rows will {name} have?")
        options = circuit.input_options.get(name)
        inputs[name] = PlannedInput(
            columns,
            table.num_rows if count is None and table is not None else count or 0,
            table,
            {
                column: distinct_numbers.pop(f"{name}.{column}")
                for column in columns.names
                if f"{name}.{column}" in distinct_numbers
            },
            () if options is None else tuple(options.keys),
        )
    for option, left in (("--rows", numbers), ("--distinct", distinct_numbers)):
        if left:
            known = ", ".join(inputs)
            raise EventsError(f"{option} {next(iter(left))}: no such name; relations: {known}")
    return inputs


def _numbers(option: str, texts: list[str]) -> dict[str, int]:
    """Return the number for each name.

    >>> _numbers("--rows", ["orders=1e8", "items=20_000"])
    {'orders': 100000000, 'items': 20000}
    """
    numbers = {}
    for text in texts:
        match = _ROWS.fullmatch(text.strip())
        if match is None:
            raise EventsError(f"{option} {text!r}: write NAME=NUMBER, as in orders=1e8")
        number = round(float(match["number"].replace("_", "")))
        if number < 1:
            raise EventsError(f"{option} {text!r}: the number must be 1 or more")
        numbers[match["name"]] = number
    return numbers


def _show(
    result: Estimate,
    inputs: Mapping[str, PlannedInput],
    largest: Measurement,
    batch: int,
    terminal: Console,
) -> None:
    for name, planned in inputs.items():
        origin = "generated rows" if planned.table is None else "rows of a file"
        terminal.print(
            f"input [name]{name}[/]: {plural(planned.rows, 'row')}"
            f" [note](sample of {origin}: {100 * largest.fraction:.3g} %)[/]",
            soft_wrap=True,
        )
    terminal.print()
    table = plain_table("Estimated memory")
    table.add_column("state", style="name", overflow="fold")
    table.add_column("for views", style="note", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("size", justify="right")
    for part in result.parts:
        name = f"{part.name} dictionary" if part.kind == "dictionary" else part.name
        views = Text(", ".join(part.views))
        table.add_row(name, views, amount(round(part.rows)), size(part.bytes))
    table.add_section()
    table.add_row("all", "", "", size(result.bytes))
    terminal.print(table)
    terminal.print()
    for part in result.parts:
        if part.is_uncertain:
            terminal.print(
                f"The size of {part.name} is uncertain, because it has only "
                f"{plural(part.sample_rows, 'row')} in the sample: give a larger --sample.",
                soft_wrap=True,
            )
    if result.high_bytes > MAX_UNCERTAINTY * result.low_bytes:
        repeating = [part.name for part in result.parts if part.high > MAX_UNCERTAINTY * part.low]
        terminal.print(
            f"All may be between {size(result.low_bytes)} and {size(result.high_bytes)}, because "
            f"rows of {', '.join(repeating)} repeat, and the sample has only "
            f"{100 * largest.fraction:.3g} % of the rows: give a larger sample.",
            soft_wrap=True,
        )
    terminal.print(
        f"A load in one step needs up to {size(LOAD_FACTOR * result.bytes)}. The files of a state "
        f"directory take about {size(result.bytes)}, and more while it is written.",
        soft_wrap=True,
    )
    terminal.print(
        f"A step of {plural(batch, 'row')} takes about {milliseconds(result.seconds)} ms on this "
        "machine, while the state fits in its caches; random access to memory makes it slower.",
        soft_wrap=True,
    )
    for name, share in result.filters.items():
        is_generated = any(planned.table is None for planned in inputs.values())
        if is_generated:
            text = Text(f"{name}: {100 * share:.3g} % of the generated rows pass")
            text.append("; give a file with a sample if that is wrong", style="note")
            terminal.print(text, soft_wrap=True)
