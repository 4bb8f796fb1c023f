"""Cell backfill: compute new views in cells in slices, while the cells of the old views go on.

::

    step t of the driver's circuit     changes the rows of inputs that the driver keeps
    after its commit                   slice of these rows (`circuits.state.sliced_backfill`)
                                       -> parts that the stages of the new views read
                                       -> step of these stages in cells of their own
                                       -> deltas of the new views, added up in the driver
    when all rows are read             the rows of the new views are published, also in slices
    change of the views                one manifest names the cells of the new stages, and those of
                                       all other stages under their new numbers
                                       (`streaming.distributed.stage_reuse`)

All stages that the new views need have cells of their own from the beginning, also a stage that the
old views have, because the rows that a stage has emitted are kept nowhere. At the end, the cells of
the old copy are dropped.

No version names the files of the new cells before the change is committed. So a crash leaves files
that the next start removes, and the backfill begins again.

Memory: the driver has the rows of the new views until the change. Work of a slice: a Spark job for
each stage that has rows. The first micro-batch after the change loads the cells of the old stages
whose circuits have new names; that takes time in proportion to their state.

Alternative considered: to read the rows also from the cells of joins, as a change at once does.
These rows are not kept in order, and each is in several cells.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from circuits import Circuit, ProgramChangeError
from circuits.runtime.graph import GraphStep
from circuits.runtime.post_step_view import PostStepView
from circuits.state.emitted_views import EmittedViews
from circuits.state.given_rows import GivenRows
from circuits.state.program_change import ProgramChange
from circuits.state.sliced_backfill import SlicedBackfill
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj.storage.trace import TraceStep
from streaming.distributed.pipeline import CellManifests, Pipeline
from streaming.errors import StateDamagedError
from streaming.state.files import Files, remove_files
from streaming.state.manifest import read_cell_manifest
from streaming.state.versions import Versions

__all__ = ["CellBackfill", "UnnamedCells", "slice_inputs"]


def slice_inputs(
    driver: Circuit, parts: Circuit, given: Mapping[str, GivenRows], where: str
) -> SlicedBackfill:
    """Begin to read the inputs of new stages in slices.

    Args:
        driver: The circuit of the driver, with its state.
        parts: A circuit of the parts of inputs that the new stages read.
        given: The rows that the caller gives, of inputs whose rows the driver does not keep.
        where: The place of the state, for messages.

    Raises:
        ProgramChangeError: The driver does not keep the rows of an input, and they are not given;
            or given rows cannot be read in slices.
    """
    change = ProgramChange(driver, parts, published=(), given=given.keys() & parts.inputs.keys())
    if change.missing:
        first = min(change.missing)
        raise ProgramChangeError(
            f"{where}: {'; '.join(change.missing.values())}, and in mode 'distributed' slices read "
            "only rows that the driver keeps or that backfill gives: leave out rows_per_batch and "
            "seconds_per_batch, so that the driver computes the new views at once from the state "
            f"of all cells; or give the rows, ChangeOptions(backfill={{{first!r}: frame}}); or "
            f'declare InputOptions(keep="all") for input {first!r} from the start'
        )
    return SlicedBackfill(change, unread_views=parts.outputs, given=given)


class UnnamedCells:
    """The cells of new stages, whose files no version names yet.

    Args:
        files: The state directory.
        versions: Does not remove the files of the cells.
    """

    def __init__(self, files: Files, versions: Versions) -> None:
        self._files = files
        self._versions = versions
        self.manifests: CellManifests = {}

    def replace(self, manifests: CellManifests) -> None:
        """Go on with the cells after a slice, and remove the files that they do not need."""
        old, new = self._names_of(self.manifests), self._names_of(manifests)
        self.manifests = manifests
        self._versions.unnamed_files = new
        with contextlib.suppress(OSError, StateDamagedError):
            remove_files(self._files, sorted(old - new))

    def release(self) -> None:
        """Leave the files to the next version."""
        self._versions.unnamed_files = ()

    def _names_of(self, manifests: CellManifests) -> set[str]:
        return {name for data in manifests.values() for name in read_cell_manifest(data).files}


class CellBackfill:
    """The backfill of new views in cells; it is used like a `SlicedBackfill`.

    Args:
        change: The change of the whole program, without state.
        inputs: Reads the rows of the inputs.
        pipeline: Runs the new stages.
        cells: The cells of these stages.
        session: Returns the Spark session of the last micro-batch.
        batch_id: The number in the names of the files.
        sliced_views: The new views that are emitted in slices, each with the columns by which
            `emitted_part` looks its rows up.

    Attributes:
        change: As given.
        pipeline: As given.
        cells: As given.
    """

    def __init__(
        self,
        change: ProgramChange,
        inputs: SlicedBackfill,
        pipeline: Pipeline,
        cells: UnnamedCells,
        session: Callable[[], SparkSession],
        batch_id: int,
        sliced_views: Mapping[str, Sequence[str]],
    ) -> None:
        self.change = change
        self.pipeline = pipeline
        self.cells = cells
        self._inputs = inputs
        self._session = session
        self._batch_id = batch_id
        self._is_interrupted = False
        self._schemas = {
            view.view: change.new.schema(view.view) for view in change.views if view.kind == "new"
        }
        self._codecs = Codecs()
        self._new_views = EmittedViews(self._schemas, self._codecs, sliced_views)

    @property
    def rows_read(self) -> int:
        """The number of rows that slices have read."""
        return self._inputs.rows_read

    @property
    def rows(self) -> int:
        """The number of rows to read in all slices, as it was known after the last one."""
        return self._inputs.rows

    @property
    def rows_emitted(self) -> int:
        """The number of rows of the slices of new views, including those in ``slices``."""
        return self._new_views.rows_emitted

    @property
    def is_valid(self) -> bool:
        """As `SlicedBackfill.is_valid`."""
        return self._inputs.is_valid and not self._is_interrupted

    @property
    def has_all_rows(self) -> bool:
        """As `SlicedBackfill.has_all_rows`."""
        return self._inputs.has_all_rows

    @property
    def is_complete(self) -> bool:
        """As `SlicedBackfill.is_complete`."""
        return self.has_all_rows and self._new_views.is_complete

    @property
    def slices(self) -> dict[str, pa.Table]:
        """As `SlicedBackfill.slices`."""
        return self._new_views.slices if self.has_all_rows else {}

    @property
    def sliced_views(self) -> frozenset[str]:
        """The views that are emitted in slices."""
        return self._new_views.sliced_views

    @property
    def emitted_views(self) -> frozenset[str]:
        """The views of which `confirm_slices` has confirmed a slice."""
        return self._new_views.begun_views

    def emitted_part(self, view: str) -> PostStepView:
        """As `SlicedBackfill.emitted_part`."""
        return self._new_views.emitted_part(view)

    def confirm_slices(self) -> None:
        """As `SlicedBackfill.confirm_slices`."""
        if self.has_all_rows:
            self._new_views.confirm()

    def advance(
        self,
        changes: Iterable[TraceStep],
        max_rows: int,
        now: int | None = None,
        *,
        on_step: Callable[[GraphStep], None] | None = None,
    ) -> int:
        """Compute the next slice, as `SlicedBackfill.advance`.

        Args:
            changes: The changed traces of the step of the driver's circuit.
            max_rows: The limit on the rows that are read.
            now: Not used, because cells do not run views that read it.
            on_step: Not used, because the cells write their state themselves.

        Raises:
            DbspWcojError: The new views fail for the rows.
            PySparkException: A task failed.
        """
        parts: dict[str, pa.Table] = {}
        inputs = self._inputs.change

        def decode(step: GraphStep) -> None:
            for name, position in step.graph.views.items():
                schema = inputs.new.schema(name)
                parts[name] = schema.to_table(step.deltas[position], inputs.old.codecs)

        self._is_interrupted = True
        read = self._inputs.advance(changes, max_rows, on_step=decode)
        if parts:
            result = self.pipeline.step(
                self._session(), parts, self._batch_id, self.cells.manifests
            )
            self.cells.replace(result.manifests)
            for view, schema in self._schemas.items():
                for table in result.outputs.get(view, ()):
                    rows = table.rename_columns(schema.arrow.names)
                    self._new_views.add({view: schema.to_zset(rows, self._codecs)})
        self._is_interrupted = False
        return read

    def emit(self, max_rows: int) -> int:
        """As `SlicedBackfill.emit`."""
        return self._new_views.emit(max_rows) if self.has_all_rows else 0

    def finish(self) -> dict[str, pa.Table]:
        """Return the rows of the new views that no step has emitted; the old views go on."""
        self._inputs.abandon()
        rows = self._new_views.remaining_rows
        return {view: self._schemas[view].to_table(rows[view], self._codecs) for view in rows}

    def abandon(self) -> None:
        """Give up the backfill, and remove its files; the old views go on."""
        self._inputs.abandon()
        self.cells.replace({})
