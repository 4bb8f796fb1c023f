"""A sink on a server of the S3 protocol is killed between requests, again and again."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest

from streaming import ViewSink
from streaming.state.manifest import read_manifest
from streaming.state.object_store.local_cache import LocalCache
from streaming.state.object_store.object_files import MappableObjectFiles, ObjectFiles
from streaming.state.offline_compaction import compact_state
from tests.support.fed_sink import ROWS, CheckingTarget, check, feed, sink_on, views


class ProcessEnds(BaseException):
    """Stands for the end of the process; no code that handles errors runs after it."""


class KilledRequests(ObjectFiles):
    """Files of a process that ends before or after one of its requests.

    Args:
        location: The URI.
        cache: The local cache.
        requests: The number of requests that succeed.
        is_answered: False if the last request takes effect and its answer is lost.
    """

    def __init__(self, location, cache, requests, *, is_answered):
        super().__init__(location, cache)
        self.requests, self.is_answered = requests, is_answered
        #: The directory whose requests are counted, if a process uses several.
        self.shared = self

    def _os_errors(self, name, target=None):
        self.shared.requests -= 1
        if self.shared.requests < 0:
            raise ProcessEnds
        return _Request(super()._os_errors(name, target), self.shared)


class KilledFiles(KilledRequests):
    """As `KilledRequests`; the local cache may be missing."""


class KilledMappableFiles(KilledRequests, MappableObjectFiles):
    """As `KilledRequests`; files can be mapped."""


class _Request:
    def __init__(self, context, files):
        self._context, self._files = context, files

    def __enter__(self):
        return self._context.__enter__()

    def __exit__(self, *error):
        result = self._context.__exit__(*error)
        if self._files.requests == 0 and not self._files.is_answered:
            raise ProcessEnds
        return result


def play(location, tmp_path, seed, mean_requests):
    """Run the stream with many processes; return their number and the published micro-batches."""
    random = Random(seed)
    committed, processes, published = 0, 0, []
    while committed < len(ROWS):
        processes += 1
        requests = int(random.expovariate(1 / mean_requests)) + processes // 4
        cache = random.choice([None, LocalCache(tmp_path / "copies")])
        is_answered = random.random() < 0.5
        is_limited = cache is not None and random.random() < 0.5
        kind = KilledMappableFiles if is_limited else KilledFiles
        files = kind(location, cache, requests, is_answered=is_answered)
        target = CheckingTarget()
        memory_limit = 1 if is_limited else None  # one byte: every part is mapped
        try:
            sink = ViewSink(views(), target, state_dir=files, memory_limit=memory_limit)
            while committed < len(ROWS):
                feed(sink, committed)  # the target checks each delta
                committed += 1
        except ProcessEnds:
            pass
        published += target.batches
    return processes, published


@pytest.mark.parametrize("seed", range(4))
def test_a_sink_that_is_killed_between_requests_loses_and_doubles_nothing(location, tmp_path, seed):
    processes, published = play(location, tmp_path, seed, mean_requests=[5, 20, 40, 60][seed])
    assert set(published) == set(range(len(ROWS)))
    assert processes > 2
    sink = sink_on(location)
    feed(sink, len(ROWS) - 1)
    check(sink, len(ROWS))
    files = ObjectFiles(location)
    assert len(files.names("manifests")) <= 4


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_compaction_that_is_killed_at_any_request_loses_nothing(location, is_answered):
    sink = sink_on(location)
    feed(sink, *range(6))
    sink.close()
    for requests in count():
        files = KilledFiles(location, None, requests, is_answered=is_answered)
        try:
            compact_state(files)
        except ProcessEnds:
            check(sink_on(location), 6)  # the newest version, old or compacted, can be read
            continue
        break
    assert requests > 20
    sink = sink_on(location)
    feed(sink, 5, 6, 7)
    check(sink, 8)
    stored = ObjectFiles(location)
    named = {name for n in (5, 6, 7) for name in read_manifest(stored, n).all_files}
    assert named == {name for folder in ("data", "outputs") for name in stored.names(folder)}


@pytest.mark.slow
def test_many_kills(location, tmp_path):
    kills = 0
    for seed in range(60):
        place = f"{location}-{seed}"
        kills += play(place, tmp_path / str(seed), seed, mean_requests=10 + seed)[0] - 1
        sink = sink_on(place)
        feed(sink, len(ROWS) - 1)
        check(sink, len(ROWS))
    assert kills > 200
