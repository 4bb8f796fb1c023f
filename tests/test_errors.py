"""The error tree."""

import inspect
import pickle

import pytest

from dbsp_wcoj import errors
from dbsp_wcoj.errors import DbspWcojError, QuerySyntaxError, UnknownRelationError

TREE = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("error", TREE)
def test_every_error_is_below_one_root(error):
    assert issubclass(error, DbspWcojError)


def test_the_public_names_are_exactly_the_classes_of_the_module():
    classes = inspect.getmembers(errors, inspect.isclass)
    assert errors.__all__ == sorted(name for name, _ in classes)


@pytest.mark.parametrize("error", TREE)
def test_every_error_survives_the_way_from_an_executor_to_the_driver(error):
    sent = error("the message")

    received = pickle.loads(pickle.dumps(sent))

    assert type(received) is error
    assert str(received) == "the message"


def test_a_syntax_error_keeps_its_position_when_pickled():
    sent = QuerySyntaxError("the message", line=3, column=7)

    received = pickle.loads(pickle.dumps(sent))

    assert (received.line, received.column) == (3, 7)


def test_builtin_handlers_catch_what_they_would_expect():
    assert issubclass(QuerySyntaxError, ValueError)
    assert issubclass(errors.WeightOverflowError, ArithmeticError)
    assert not issubclass(UnknownRelationError, KeyError)
