"""The tree of error classes: every error of the packages is below one root, and can be pickled."""

import inspect
import pickle

import pytest

from circuits import errors as circuit_errors
from circuits.errors import CircuitError, TextError, UnknownInputError, UnknownViewError
from dbsp_wcoj import errors
from dbsp_wcoj.errors import DbspWcojError, QuerySyntaxError, UnknownRelationError
from streaming import errors as streaming_errors

LAYERS = [errors, circuit_errors, streaming_errors]
TREE = [getattr(layer, name) for layer in LAYERS for name in layer.__all__]


@pytest.mark.parametrize("error", TREE)
def test_every_error_is_below_one_root(error):
    assert issubclass(error, DbspWcojError)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_the_public_names_are_exactly_the_classes_of_the_module(layer):
    classes = inspect.getmembers(layer, inspect.isclass)
    own_names = sorted(name for name, cls in classes if cls.__module__ == layer.__name__)
    assert layer.__all__ == own_names


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
def test_the_tree_in_the_docstring_has_every_error(layer):
    for name in layer.__all__:
        assert name in layer.__doc__


def test_what_a_layer_refuses_is_below_the_error_of_the_layer():
    for name in circuit_errors.__all__:
        assert issubclass(getattr(circuit_errors, name), CircuitError)


@pytest.mark.parametrize("error", TREE)
def test_every_error_survives_the_way_from_an_executor_to_the_driver(error):
    sent = error("the message")

    received = pickle.loads(pickle.dumps(sent))

    assert type(received) is error
    assert str(received) == "the message"


@pytest.mark.parametrize("error", [e for e in TREE if issubclass(e, TextError)])
def test_an_error_in_a_text_keeps_its_place_when_pickled(error):
    received = pickle.loads(pickle.dumps(error("the message", 3, 7)))

    assert (str(received), received.line, received.column) == ("the message", 3, 7)


def test_a_syntax_error_keeps_its_position_when_pickled():
    sent = QuerySyntaxError("the message", line=3, column=7)

    received = pickle.loads(pickle.dumps(sent))

    assert (received.line, received.column) == (3, 7)


def test_builtin_handlers_catch_what_they_would_expect():
    assert issubclass(QuerySyntaxError, ValueError)
    assert issubclass(errors.WeightOverflowError, ArithmeticError)
    assert not issubclass(UnknownRelationError, KeyError)
    assert issubclass(TextError, ValueError)
    assert issubclass(UnknownInputError, UnknownRelationError)
    assert issubclass(UnknownViewError, KeyError)
    assert str(UnknownViewError("the message")) == "the message"
