"""Frozen objects: the garbage collector skips the objects that exist when a query has started.

From time to time Python's garbage collector visits every object that can be in a cycle. The modules
of Spark, Arrow and numba have more than a hundred thousand, so a collection takes 20 to 100 ms, in
the middle of a micro-batch of 2 ms. The objects that remain after the first micro-batch of a sink
are long-lived: `gc.freeze` exempts them, and later collections visit only newer objects. When the
last sink is closed or deleted, `gc.unfreeze` ends the exemption.

While objects are frozen, those of them that become unreachable are freed as usual by their
reference counts, except objects in cycles, which are freed after the sink is closed.
"""

from __future__ import annotations

import gc
import weakref
from threading import RLock

__all__ = ["FROZEN_OBJECTS", "FrozenObjects"]


class FrozenObjects:
    """The owners for which the existing objects are frozen.

    All methods may be called from several threads.
    """

    def __init__(self) -> None:
        # A finalizer may run in the middle of any method, in the same thread.
        self._lock = RLock()
        # A finalizer for each of them, by id.
        self._owners: dict[int, weakref.finalize[..., object]] = {}
        self._is_frozen = False

    def hold(self, owner: object) -> None:
        """Freeze all objects until `release`, or until the owner is deleted.

        Repeated calls for one owner do nothing. Nothing is frozen if the program has frozen objects
        itself, because `gc.unfreeze` would end that as well.

        Complexity:
            O(1), except for the first owner: O(frozen objects).
        """
        identity = id(owner)
        with self._lock:
            if identity in self._owners:
                return
            if not self._owners and not gc.get_freeze_count():
                gc.freeze()
                self._is_frozen = True
            self._owners[identity] = weakref.finalize(owner, self._release, identity)

    def release(self, owner: object) -> None:
        """End the exemption for one owner; for the last one, unfreeze all objects."""
        self._release(id(owner))

    def _release(self, identity: int) -> None:
        with self._lock:
            finalizer = self._owners.pop(identity, None)
            if finalizer is not None:
                finalizer.detach()
            if self._is_frozen and not self._owners:
                gc.unfreeze()
                self._is_frozen = False


#: The objects of this process.
FROZEN_OBJECTS = FrozenObjects()
