"""Runners of tasks: in this process, one after another, or on Spark's executors.

A task is a function of one argument. Its errors that Spark must not retry reach the driver as JSON
(`streaming.distributed.task_errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from dbsp_wcoj.errors import DbspWcojError
from streaming.distributed.execution.task import cheap_collection
from streaming.distributed.task_errors import format_error, parse_error

__all__ = ["LocalRunner", "SparkRunner", "TaskRunner"]

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class TaskRunner(Protocol):
    """Runs tasks.

    Attributes:
        parallelism: The number of tasks that run at the same time.
    """

    @property
    def parallelism(self) -> int: ...

    def run(
        self, function: Callable[[Argument], Result], arguments: Sequence[Argument]
    ) -> list[Result]:
        """Return the results, in the order of the arguments.

        Raises:
            DbspWcojError: A task failed.
            PySparkException: A task failed, also after Spark's retries.
        """


class LocalRunner:
    """Runs tasks in this process, one after another.

    >>> LocalRunner().run(abs, [-1, 2])
    [1, 2]
    """

    parallelism = 1

    def run(
        self, function: Callable[[Argument], Result], arguments: Sequence[Argument]
    ) -> list[Result]:
        """As `TaskRunner.run`."""
        return [function(argument) for argument in arguments]


@dataclass(frozen=True)
class SparkRunner:
    """Runs tasks on executors. Functions, arguments and results are pickled.

    Attributes:
        session: The session.
    """

    session: SparkSession

    @property
    def parallelism(self) -> int:
        """The default parallelism of the session."""
        return self.session.sparkContext.defaultParallelism

    def run(
        self, function: Callable[[Argument], Result], arguments: Sequence[Argument]
    ) -> list[Result]:
        """As `TaskRunner.run`."""
        count = min(len(arguments), self.parallelism)
        if not count:
            return []
        numbered = [*enumerate(arguments)]
        parts = [numbered[first::count] for first in range(count)]
        tasks = self.session.sparkContext.parallelize(parts, count)
        results: dict[int, Result] = {}
        errors: dict[int, bytes] = {}
        for number, result, error in tasks.mapPartitions(_Tasks(function).run).collect():
            if error:
                errors[number] = error
            else:
                results[number] = result
        if errors:
            raise parse_error(errors[min(errors)])
        return [results[number] for number in range(len(arguments))]


@dataclass(frozen=True)
class _Tasks(Generic[Argument, Result]):
    """The function of a Spark task, which runs some tasks.

    Attributes:
        function: The function of a task.
    """

    function: Callable[[Argument], Result]

    def run(self, parts: Iterable[list[tuple[int, Argument]]]) -> Iterator[tuple[int, Any, bytes]]:
        """Yield the number of each task, and its result or its error."""
        with cheap_collection():
            for number, argument in (numbered for part in parts for numbered in part):
                try:
                    yield number, self.function(argument), b""
                except DbspWcojError as error:
                    yield number, None, format_error(error)
                    return
