"""The options of the data source are checked, and errors say which values are valid."""

import pytest

from streaming import StateError
from streaming.data_source.read_options import ReadOptions

PLACE = {"state": "s", "view": "v"}
CHANGES = {**PLACE, "readChangeFeed": "true"}


def test_names_may_have_any_case_and_the_argument_of_load_is_the_state():
    assert ReadOptions.of({"PATH": "s", "View": "v", "VERSION": "3"}) == ReadOptions("s", "v", 3)
    options = ReadOptions.of(
        {**CHANGES, "startingversion": "LATEST", "maxVersionsPerTrigger": "2", "path": "s"}
    )
    assert options.starts_at_newest
    assert (options.reads_changes, options.max_versions) == (True, 2)
    assert ReadOptions.of({**CHANGES, "startingVersion": "5"}).starting_version == 5
    assert not ReadOptions.of({**PLACE, "readChangeFeed": "False"}).reads_changes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs the option 'state'"),
        ({"state": "s"}, "needs the option 'view'"),
        ({**PLACE, "path": "other"}, "state='s' and path='other' differ"),
        ({**PLACE, "viev": "w"}, "unknown option 'viev'.*there are state, view, version"),
        ({**PLACE, "version": "-1"}, "version='-1': it must be a whole number from 0"),
        ({**PLACE, "version": "²"}, "version='²'"),
        ({**PLACE, "version": "9" * 40}, "version='999"),
        ({**PLACE, "readChangeFeed": "yes"}, "readChangeFeed='yes': it must be true or false"),
        ({**PLACE, "startingVersion": "1"}, "startingVersion is for changes"),
        ({**CHANGES, "version": "1"}, "option version is for rows"),
        ({**CHANGES, "startingVersion": "oldest"}, "startingVersion='oldest'"),
        ({**CHANGES, "maxVersionsPerTrigger": "0"}, "whole number from 1"),
    ],
)
def test_an_option_that_is_missing_or_invalid_is_an_error(options, message):
    with pytest.raises(StateError, match=message):
        ReadOptions.of(options)
