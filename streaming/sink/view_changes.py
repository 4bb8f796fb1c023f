"""View changes: views are added to a sink, or dropped from it, while its query runs.

::

    add_view, drop_view     edit the program and check it; any thread
    between micro-batches   the state moves to a circuit of the edited program
    next micro-batch        its manifest commits the change; the targets receive the new views

A change is made when no micro-batch runs: at once, in the thread of the caller, if the sink has
loaded its state; otherwise when the next micro-batch has loaded it. The next micro-batch commits it
(`streaming.state.program_change`). After a crash before that, the state directory is one of the
views before the change, and the caller requests it again.

If the state is not loaded, the rows that a new view needs are not known yet. An error is then not
raised to the caller but set on the future of the change, and the query goes on with its views.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field

from circuits import Circuit
from circuits.program_edits import add_views, remove_view
from circuits.user_functions import UserFunction
from streaming.errors import TargetError
from streaming.sink.output import Output, OutputRouting, Outputs, list_outputs, route_outputs
from streaming.state.program_change import ChangeOptions

__all__ = ["AddViews", "DropView", "RequestedChange", "ViewChanges"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AddViews:
    """Views to add; the arguments of `streaming.ViewSink.add_view`."""

    text: str
    outputs: Outputs = None
    name: str | None = None
    materialize: Collection[str] = ()
    functions: dict[str, UserFunction] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    def apply(self, circuit: Circuit, routing: OutputRouting) -> tuple[Circuit, OutputRouting]:
        """Return an empty circuit with the further views, and their outputs.

        Raises:
            TextError, ProgramChangeError: As `circuits.program_edits.add_views`.
            UnknownViewError, TargetError: An output does not fit the new views.
        """
        spec = add_views(
            circuit.spec,
            self.text,
            name=self.name,
            materialize=self.materialize,
            functions=self.functions,
        )
        edited = circuit.with_spec(spec)
        new = [view for view in edited.outputs if view not in circuit.outputs]
        outputs = list_outputs(new, self.outputs)
        for output in outputs:
            if output.view in circuit.outputs:
                raise TargetError(
                    f"outputs: view {output.view!r} is not new; new views are {', '.join(new)}"
                )
        return edited, route_outputs(edited, [*routing.outputs.values(), *outputs])


@dataclass(frozen=True)
class DropView:
    """A view to drop."""

    view: str

    @property
    def dropped(self) -> tuple[str, ...]:
        """The view."""
        return (self.view,)

    def apply(self, circuit: Circuit, routing: OutputRouting) -> tuple[Circuit, OutputRouting]:
        """Return an empty circuit without the view, and the remaining outputs.

        Raises:
            UnknownViewError, ProgramChangeError: As `circuits.program_edits.remove_view`.
        """
        edited = circuit.with_spec(remove_view(circuit.spec, self.view))
        outputs: list[Output] = [o for o in routing.outputs.values() if o.view != self.view]
        return edited, route_outputs(edited, outputs)


@dataclass(frozen=True)
class RequestedChange:
    """A change that was requested and is not committed yet.

    Attributes:
        edit: The edit of the program.
        options: What the change may do.
        committed: Receives the id of the micro-batch that commits the change, or an error.
    """

    edit: AddViews | DropView
    options: ChangeOptions
    committed: Future[int] = field(default_factory=Future)


class ViewChanges:
    """The requested changes of a sink, in their order.

    All methods are called with the lock of the sink, which no running micro-batch gives up.
    """

    def __init__(self) -> None:
        self._requests: deque[RequestedChange] = deque()
        self._made: list[RequestedChange] = []  # in memory; the next micro-batch commits them

    @property
    def is_pending(self) -> bool:
        """True if a change is not committed yet."""
        return bool(self._requests or self._made)

    def check(self, request: RequestedChange, circuit: Circuit, routing: OutputRouting) -> None:
        """Check the edit of a change on the program with all changes that are still to be made.

        Raises:
            DbspWcojError: The edit does not fit this program.
        """
        for earlier in self._requests:
            circuit, routing = earlier.edit.apply(circuit, routing)
        request.edit.apply(circuit, routing)

    def add(self, request: RequestedChange) -> None:
        """Make a change when the state is loaded."""
        self._requests.append(request)

    def make_all(self, make: Callable[[RequestedChange], None]) -> None:
        """Make the changes that were requested before the state was loaded.

        An error is set on the future of its change; the views stay as they were.
        """
        while self._requests:
            request = self._requests.popleft()
            if not request.committed.set_running_or_notify_cancel():
                continue
            try:
                make(request)
            except Exception as error:
                log.warning("a change of the views failed, and they stay as they are: %s", error)
                request.committed.set_exception(error)
            else:
                self._made.append(request)

    def make(self, request: RequestedChange, make: Callable[[RequestedChange], None]) -> None:
        """Make a change now; the error is that of ``make``."""
        request.committed.set_running_or_notify_cancel()
        make(request)
        self._made.append(request)

    def confirm(self, batch_id: int) -> None:
        """Record that a micro-batch has committed all changes that are made."""
        made, self._made = self._made, []
        for request in made:
            request.committed.set_result(batch_id)
