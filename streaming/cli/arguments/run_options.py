"""The options of the command ``run``, from the command line and from a job file.

An option on the command line replaces the value in the job file: ``--source`` replaces the input of
the same name, ``--conf`` the setting of the same name, and ``--sink`` replaces all outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming.cli.arguments.checks import Checks
from streaming.cli.arguments.job_file import Job, is_job_file, read_job
from streaming.cli.arguments.session_settings import read_settings
from streaming.cli.arguments.sink import SinkArgument
from streaming.cli.arguments.source import SourceArgument, parse_sources, read_rows
from streaming.cli.arguments.views import DUCKDB, declarations_of, with_declarations
from streaming.state.program_change import ChangeOptions

__all__ = ["RunOptions"]


@dataclass(frozen=True)
class RunOptions:
    """The options of the command ``run``.

    Each field has the name and the meaning of an option (see `declarations.run`).

    Attributes:
        sources: The sources by relation.
        sinks: The sinks in order.
        labels: The names, in error messages, of the options whose values are from a job file.
        spark_settings: The settings of Spark, of ``--conf`` and of the job file.
    """

    query: str
    sources: dict[str, SourceArgument]
    sinks: list[SinkArgument]
    state: str | None
    state_mode: str
    once: bool
    every: str | None
    bad_rows: str
    cells: int | None
    formula: str
    threads: int | None
    max_step_rows: int | None
    max_step_bytes: str | None
    max_seconds: float | None
    memory: str
    ui: bool
    ui_port: int
    ui_host: str
    ui_token_file: Path | None
    check: bool
    verbose: bool
    log_format: str
    json: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    dialect: str = DUCKDB
    functions: str | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    max_commit_age: float | None = None
    stop_timeout: float = 30.0
    allow_drop: bool = False
    slice_seconds: float | None = None
    backfill: list[str] | None = None
    backfill_batch_id: int | None = None
    dead_letter_days: float = 30.0
    dead_letter_size: str = "1G"
    memory_limit: str | None = None
    checkpoint: Path | None = None
    spark_settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        query: str,
        source: Collection[str],
        sink: Collection[str],
        *,
        explicit: Collection[str],
        checks: Checks,
        conf: Collection[str] = (),
        **other_options: Any,
    ) -> RunOptions:
        """Combine the command line with the job file, if ``query`` names one.

        Args:
            query: The query, or the job file.
            source: The values of ``--source``.
            sink: The values of ``--sink``.
            explicit: The options that the user wrote on the command line; others have defaults.
            checks: Receives the problems of sources, sinks, settings and the job file.
            conf: The values of ``--conf``.
            other_options: The other options by name.

        Raises:
            EventsError: The job file cannot be read, or is not TOML.
        """
        job = read_job(Path(query), checks) if is_job_file(query) else Job(query)
        from_file = {name: value for name, value in job.options.items() if name not in explicit}
        labels = {name: label for name, label in job.labels.items() if name in from_file}
        merged_options = {**other_options, **from_file}
        sources, sinks = dict(job.sources), list(job.sinks)
        if source or not (sources or checks.problems):
            with checks.check():
                sources |= parse_sources(list(source))
        if job.query and not checks.problems:
            with checks.check():
                declarations = declarations_of(job.query, merged_options.get("dialect") or DUCKDB)
                sources = with_declarations(sources, declarations)
                checks.warnings += declarations.notices
        if sink:
            sinks = []
        for text in sink:
            with checks.check():
                sinks.append(SinkArgument.parse(text))
        return cls(
            job.query,
            sources,
            sinks,
            **merged_options,
            labels=labels,
            spark_settings=read_settings(conf, job.spark_settings, checks),
        )

    def change(self) -> ChangeOptions:
        """Return what a change of the views may do, with the rows of ``--backfill``.

        Raises:
            EventsError: A file cannot be read.
        """
        sources = parse_sources(self.backfill) if self.backfill else {}
        rows = {name: read_rows(source) for name, source in sources.items()}
        seconds = self.slice_seconds
        is_limit = seconds is not None and seconds > 0
        return ChangeOptions(
            self.allow_drop,
            rows,
            seconds_per_batch=seconds if is_limit else None,
            backfill_batch_id=self.backfill_batch_id,
        )

    def label(self, option: str) -> str:
        """Return the name of an option in messages: its key in the job file, or ``--option``."""
        return self.labels.get(option, f"--{option.replace('_', '-')}")
