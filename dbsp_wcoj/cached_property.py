"""A cached property that takes no lock.

Until Python 3.11, `functools.cached_property` has one lock for each property of a class, and holds
it while it computes a value. Properties of a tree read those of other nodes: the fields of a join
are computed from those of a map, and the reverse in another tree. So two threads that plan queries
could wait for each other for ever. From Python 3.12 on there is no lock.

Two threads may compute a value at the same time; both results are equal, and one of them is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:
    T = TypeVar("T")

    class cached_property(Generic[T]):
        """Computes a value when it is first read, and keeps it in the ``__dict__`` of the object.

        >>> class Square:
        ...     def __init__(self, side):
        ...         self.side = side
        ...
        ...     @cached_property
        ...     def area(self):
        ...         return self.side * self.side
        >>> square = Square(3)
        >>> square.area, square.__dict__
        (9, {'side': 3, 'area': 9})
        """

        def __init__(self, function: Callable[[Any], T]) -> None:
            self.func = function
            self.__doc__ = function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.attrname = name

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = self.func(instance)
            instance.__dict__[self.attrname] = value
            return value
