"""A live page of a running sink, in a browser on this machine.

::

    row_texts        rows as short texts
    view_counts      the numbers of a view over time
    pattern, matches rings and triangles among the columns of a view; the newest matches
    layout, drawing  the circuit as boxes in layers, with rows and time of each operator
    state_summary    rows and bytes of each arrangement
    history          the data of the page after each micro-batch, bounded, cheap for the sink
    access           the token, sessions, failed attempts
    application      the page, its files, the sign-in form (starlette)
    events           the history as JSON, and as a stream of events
    connections      limits on the number and the resources of connections (uvicorn)
    server           the application in a thread
    page             the public interface

    assets/          the page itself: HTML, CSS and JavaScript, without external resources

Only the server needs the extra ``ui``.
"""

from streaming.ui.page import Page, serve

__all__ = ["Page", "serve"]
