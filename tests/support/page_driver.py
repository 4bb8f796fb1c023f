"""Runs a sink with a live page in a process with few file descriptors, for `test_ui_limits`.

Reads a command per line from standard input and answers each with a line of JSON:

    step             one micro-batch; it opens files of the state directory
    hoard            open files until no file descriptor is left
    release          close these files
    close-listener   take the port away from the page
    wait             sleep for half a second
    kill-page        end the event loop of the page with an error
    stop             stop the page and leave
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
import time
from pathlib import Path

from circuits import compile_sql
from streaming import ViewSink
from streaming.ui import serve
from tests.streaming.sink.test_view_sink import Frame
from tests.support.tables import EDGE, edges


def main(limit: int, folder: Path, token: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    log_messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: log_messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("streaming.ui").addHandler(handler)
    views = "CREATE VIEW v AS SELECT count(*) AS n FROM e; CREATE VIEW w AS SELECT src, dst FROM e"
    sink = ViewSink(compile_sql(views, {"e": EDGE}), state_dir=folder)
    page = serve(sink, port=0, token=token or None)
    hoard: list[int] = []
    steps = 0
    print(json.dumps({"address": page.address}), flush=True)
    for line in sys.stdin:
        match line.strip():
            case "step":
                for _ in range(10):
                    sink(Frame(edges(*((steps, n) for n in range(20)))), steps)
                    steps += 1
                Path(folder / "other").write_text(str(steps))
            case "hoard":
                try:
                    while True:
                        hoard.append(os.open(os.devnull, os.O_RDONLY))
                except OSError:
                    pass
            case "release":
                for number in hoard:
                    os.close(number)
                hoard.clear()
            case "close-listener":
                page._server._socket.close()
            case "kill-page":
                loop = page._server._server._accepting.get_loop()
                loop.call_soon_threadsafe(loop.stop)
            case "wait":
                time.sleep(0.5)
            case "stop":
                page.stop()
                print(json.dumps({"stopped": True}), flush=True)
                break
        if hoard:
            # /proc cannot be read without a descriptor.
            answer = {"open": limit, "log": log_messages, "steps": steps}
        else:
            time.sleep(0.05)
            answer = {"open": len(os.listdir("/proc/self/fd")), "log": log_messages, "steps": steps}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
