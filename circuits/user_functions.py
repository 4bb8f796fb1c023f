"""User-defined functions: Python functions that the views of a circuit call by name.

::

    >>> from circuits import compile_sql, udf
    >>> score = udf(lambda text: len(text) / 10, returns=pa.float64())
    >>> circuit = compile_sql(
    ...     "SELECT id, score(title) AS s FROM posts",
    ...     {"posts": "id bigint, title string"},
    ...     functions={"score": score},
    ... )
    >>> circuit.step({"posts": [{"id": 1, "title": "hello"}]})["view"].to_pylist()
    [{'id': 1, 's': 0.5, 'weight': 1}]

A front end builds expressions with calls of these functions (`call_user_function`). Before the plan
is rewritten, `circuits.plan.user_call_placement` makes a plan node of each call, and its operator
remembers the results of the rows that exist (`circuits.runtime.operators.user_call`). So the
functions need not be deterministic: a deleted row takes back the result that was computed when it
was inserted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from circuits.errors import FunctionError, SchemaError
from circuits.excerpt import excerpt, shorten
from circuits.plan.expressions import Call, Expression
from circuits.types.arrow_types import Family, family_of, is_nested, part_types
from circuits.types.codecs.codec import Codecs
from circuits.types.ddl import field_of
from circuits.types.functions.casting.coercion import adapt, cast_to
from circuits.types.functions.type_rules import common_type
from dbsp_wcoj import ArgumentTypeError
from dbsp_wcoj.arguments import check_type

__all__ = [
    "FailedCall",
    "UserFunction",
    "call_user_function",
    "check_functions",
    "udf",
    "user_function_name",
]

# The names of user-defined functions in expressions, so that they differ from all built-in ones.
_PREFIX: Final = "user:"
_HOW_TO_DECLARE: Final = 'give functions={"name": udf(function, returns=...)}'


class FailedCall(Exception):
    """A function raised an error, or its result is not valid.

    Args:
        reason: The error.
        row: The number of the row among the arguments; None if no single row is at fault.
    """

    def __init__(self, reason: str, row: int | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.row = row


@dataclass(frozen=True)
class UserFunction:
    """A function of Python with the types of its arguments and of its result; `udf` makes one.

    Attributes:
        function: The function.
        returns: The type of the result.
        parameters: The types to which arguments are cast; None to pass them as they are.
        vectorized: True if the function takes and returns Arrow arrays.
        call_on_null: True if the function is also called if an argument is NULL.
        version: A text that is changed when the results of the function change.
    """

    function: Callable[..., Any]
    returns: pa.DataType
    parameters: tuple[pa.DataType, ...] | None = None
    vectorized: bool = False
    call_on_null: bool = False
    version: str = ""

    @property
    def signature(self) -> str:
        """The declaration as a text; the state of a view depends on it, not on the code.

        >>> udf(len, returns=pa.int64(), parameters=[pa.string()]).signature
        '(string) -> int64'
        """
        parameters = "..." if self.parameters is None else ", ".join(map(str, self.parameters))
        parts = [f"({parameters}) -> {self.returns}"]
        parts += ["vectorized"] * self.vectorized + ["called on NULL"] * self.call_on_null
        parts += [f"version {self.version!r}"] * bool(self.version)
        return ", ".join(parts)

    def check_count(self, count: int) -> None:
        """Check that the function can be called with a number of arguments.

        Raises:
            FunctionError: It cannot.
        """
        if not count:
            raise FunctionError(
                "it needs an argument: its result is remembered for each value of its arguments; "
                "give a column that identifies the row"
            )
        if self.parameters is not None:
            if count != len(self.parameters):
                raise FunctionError(f"it takes {len(self.parameters)} arguments, not {count}")
            return
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # some functions of C have no signature
            return
        try:
            signature.bind(*[None] * count)
        except TypeError as error:
            raise FunctionError(f"it does not take {count} arguments: {error}") from None

    def compute(self, arguments: Sequence[pa.Array]) -> pa.Array:
        """Call the function for rows of arguments, which have no NULL unless `call_on_null`.

        Returns:
            An array of type `returns`, as long as the arguments.

        Raises:
            FailedCall: The function raised an error, or a result is not of the declared type.
        """
        if not len(arguments[0]):
            return pa.nulls(0, self.returns)
        if self.vectorized:
            return self._compute_array(arguments)
        results = []
        try:
            columns = [array.to_pylist() for array in arguments]
        except (ValueError, OverflowError) as error:
            raise FailedCall(f"an argument is no value of Python: {error}", None) from error
        for row, values in enumerate(zip(*columns, strict=True)):
            try:
                result = self.function(*values)
            except MemoryError:
                raise
            except Exception as error:
                raise FailedCall(_describe(error), row) from error
            # Converted at once, because the function may change a list that it has returned.
            results.append(self._convert(result, row))
        return pa.array(results, self.returns)

    def _convert(self, value: Any, row: int) -> pa.Scalar:
        try:
            if isinstance(value, pa.Scalar):
                return value.cast(self.returns)
            if _loses_fraction(value, self.returns):
                raise ValueError("it has a fraction")
            return pa.scalar(value, self.returns)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FailedCall(
                f"it returned {excerpt(value)}, which is no value of type {self.returns}: "
                f"{shorten(str(error))}",
                row,
            ) from error

    def _compute_array(self, arguments: Sequence[pa.Array]) -> pa.Array:
        """Call a vectorized function; find the row of an error by bisection.

        If the function fails for all rows together, but not for the row that is found alone, no
        single row is at fault.
        """
        try:
            return self._call_array(arguments)
        except FailedCall as error:
            failure = error
        start, stop = 0, len(arguments[0])
        while stop - start > 1:
            middle = (start + stop) // 2
            try:
                self._call_array([array[start:middle] for array in arguments])
                start = middle
            except FailedCall as error:
                stop, failure = middle, error
        try:
            self._call_array([array[start:stop] for array in arguments])
        except FailedCall as error:
            raise FailedCall(error.reason, start) from error.__cause__
        raise FailedCall(failure.reason, None) from failure.__cause__

    def _call_array(self, arguments: Sequence[pa.Array]) -> pa.Array:
        rows = len(arguments[0])
        try:
            result = self.function(*arguments)
        except MemoryError:
            raise
        except Exception as error:
            raise FailedCall(_describe(error), None) from error
        try:
            array = self._as_array(result)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FailedCall(
                f"it returned a {type(result).__name__} that is no array of type {self.returns}: "
                f"{shorten(str(error))}",
                None,
            ) from error
        if len(array) != rows:
            raise FailedCall(
                f"it returned {len(array)} values for {rows} rows; return one for each row", None
            )
        return array

    def _as_array(self, result: Any) -> pa.Array:
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if isinstance(result, np.ndarray):
            result = pa.array(result)
        if not isinstance(result, pa.Array):
            raise TypeError("return a pyarrow.Array, or a numpy array")
        return result if result.type == self.returns else result.cast(self.returns)


def udf(
    function: Callable[..., Any],
    *,
    returns: pa.DataType | str,
    parameters: Sequence[pa.DataType | str] | None = None,
    vectorized: bool = False,
    call_on_null: bool = False,
    version: str = "",
) -> UserFunction:
    """Declare a function of Python that views can call.

    The function is called once for each distinct combination of arguments in the rows that exist.
    The results are part of the state: a row that is deleted takes back the result that it was
    inserted with. When the last row with these arguments is deleted, the result is forgotten. The
    function need not be deterministic, but must not depend on the order of calls.

    Args:
        function: Takes one Python value per argument and returns one, None for NULL. A vectorized
            one takes Arrow arrays of equal length and returns one as long.
        returns: The type of the result: an Arrow type, or its name in a schema text (``"double"``).
        parameters: The types of the parameters. Arguments are cast to them. Without, any values
            are passed as they are: for example, a literal 1.5 is a Decimal.
        vectorized: True for a function of Arrow arrays.
        call_on_null: By default the result is NULL, without a call, if an argument is NULL. True to
            call the function with None, or with arrays that have NULLs.
        version: Part of the declaration. Change it when the function is to compute other results:
            a state directory of another version is refused, so that old and new results do not mix.

    Returns:
        The function, for ``functions={"name": udf(...)}`` of `compile_sql` and `compile_datalog`.

    Raises:
        ArgumentTypeError: An argument is of the wrong Python type.
        SchemaError: No column can have a type.

    >>> udf(str.upper, returns="string", parameters=["string"]).returns
    DataType(string)
    """
    if not callable(function):
        raise ArgumentTypeError(f"function is {function!r}: give a function of Python")
    check_type("vectorized", vectorized, bool, "True or False")
    check_type("call_on_null", call_on_null, bool, "True or False")
    check_type("version", version, str, "a text")
    types = None
    if parameters is not None:
        check_type("parameters", parameters, Sequence, "a list of Arrow types")
        types = tuple(_type_of(f"parameter {i + 1}", type) for i, type in enumerate(parameters))
    return UserFunction(
        function, _type_of("returns", returns), types, vectorized, call_on_null, version
    )


def _type_of(name: str, type: pa.DataType | str) -> pa.DataType:
    if isinstance(type, str):
        type = field_of(name, type).type
    check_type(name, type, pa.DataType, "an Arrow type, as pa.float64(), or its name")
    if family_of(type) is Family.NULL:
        raise SchemaError(f"{name}: NULL is no type of a result; give pa.string() or another one")
    Codecs().codec(type)
    return type


def check_functions(functions: Mapping[str, UserFunction] | None) -> dict[str, UserFunction]:
    """Return user-defined functions by lower-case name.

    Raises:
        ArgumentTypeError: ``functions`` is no mapping from names to functions that `udf` made.
        FunctionError: A name is no identifier, or two names differ only in case.
    """
    if functions is None:
        return {}
    check_type("functions", functions, Mapping, _HOW_TO_DECLARE)
    checked: dict[str, UserFunction] = {}
    for name, function in functions.items():
        check_type("functions", name, str, "a name as the key")
        check_type(f"functions[{name!r}]", function, UserFunction, _HOW_TO_DECLARE)
        if not (name.isidentifier() and name.isascii()):
            raise FunctionError(
                f"function {name!r}: a name has ASCII letters, digits and underscores only"
            )
        if name.casefold() in checked:
            raise FunctionError(f"two functions {name!r}: names are compared without case")
        checked[name.casefold()] = function
    return checked


def call_user_function(
    name: str, function: UserFunction, arguments: Sequence[Expression]
) -> Expression:
    """Return the typed call of a function.

    Raises:
        FunctionError: The function does not take this number of arguments, or these types.
    """
    try:
        function.check_count(len(arguments))
        typed = tuple(arguments)
        if function.parameters is not None:
            typed = tuple(map(_cast_argument, typed, function.parameters))
    except FunctionError as error:
        raise FunctionError(f"{name}(): {error}") from None
    typed = tuple(
        cast_to(argument, pa.string()) if pa.types.is_null(argument.type) else argument
        for argument in typed
    )
    return Call(_PREFIX + name, typed, function.returns)


def _cast_argument(argument: Expression, type: pa.DataType) -> Expression:
    """Return an argument in the type of its parameter; only safe casts are implicit."""
    if argument.type == type:
        return argument
    # `adapt` casts a literal to the type of the other arguments, here of a nameless call.
    adapted = adapt([argument, Call("", (), type)])[0]
    try:
        common = common_type([adapted.type, type])
    except FunctionError:
        common = pa.null()
    are_both_floats = pa.types.is_floating(type) and pa.types.is_floating(common)
    if common != type and not are_both_floats:
        raise FunctionError(
            f"a parameter is of type {type}, and the argument of type {argument.type}; cast it"
        )
    return cast_to(argument, type)


def user_function_name(expression: Expression) -> str | None:
    """Return the name of the function that an expression calls; None if it is built in."""
    if isinstance(expression, Call) and expression.function.startswith(_PREFIX):
        return expression.function.removeprefix(_PREFIX)
    return None


def _loses_fraction(value: Any, type: pa.DataType) -> bool:
    """Return whether a conversion to ``type`` drops the fraction of a number in a Python value.

    >>> _loses_fraction([1, 0.5], pa.list_(pa.int8())), _loses_fraction(0.5, pa.float32())
    (True, False)
    """
    if isinstance(value, float | np.floating | Decimal):
        is_exact = pa.types.is_floating(type) or pa.types.is_decimal(type)
        return not is_exact and bool(value != value // 1)  # True for NaN
    if not is_nested(type) or value is None:
        return False
    if pa.types.is_struct(type):
        return isinstance(value, Mapping) and any(
            _loses_fraction(value.get(member.name), member.type) for member in type
        )
    if not pa.types.is_map(type):
        (element_type,) = part_types(type)
        return any(_loses_fraction(element, element_type) for element in value)
    entries = value.items() if isinstance(value, Mapping) else value
    return any(
        _loses_fraction(key, type.key_type) or _loses_fraction(item, type.item_type)
        for key, item in entries
    )


def _describe(error: Exception) -> str:
    return f"it raised {type(error).__name__}: {shorten(str(error))}"
