"""A live page of a running sink, in a browser on this machine.

::

    shown, tally     a delta as texts; the numbers of a view over time
    pattern, matches rings and triangles among the columns of a view; the newest of them
    layout, drawing  the circuit as boxes in layers, with rows and time of each operator
    state            what each arrangement holds
    history          all of it after each micro-batch, bounded, at next to no cost for the sink
    access           the token, sessions, failed attempts
    application      the page, its files, the form to sign in (starlette)
    events           what a history knows as JSON, and as a stream
    connections      how many connections there are, and what each may take (uvicorn)
    server, page     ... served in a thread; what users call

    assets/          the page itself: HTML, CSS and JavaScript, nothing from elsewhere

The server needs the extra ``ui``; nothing else here does.
"""

from streaming.ui.page import Page, serve

__all__ = ["Page", "serve"]
