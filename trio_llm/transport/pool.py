"""The keep-alive pool. A connection is owned by exactly one request or idle; every operation is O(1).

There is no state between owned and idle, and no background task: what a request owns it gives back, whole
or closed, in the same breath in which it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import trio

from .connection import Connection, Route


class _Waiter:
    """A request that waits for a slot. ``granted`` says that it has one, ``connection`` what came along."""

    __slots__ = ("connection", "event", "granted", "route")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.event = trio.Event()
        self.granted = False
        self.connection: Connection | None = None

    def grant(self, connection: Connection | None) -> None:
        self.granted = True
        self.connection = connection
        self.event.set()


class Pool:
    """Hands connections to requests.

    A connection takes a slot from before it is opened until it is closed, idle or not.

    Args:
        max_connections: how many slots there are; None: as many as it takes.
        idle_expiry: after how many seconds an idle connection is closed, at the next use of the pool.

    Attributes:
        slots_taken: how many connections are being opened, owned or idle.
    """

    def __init__(self, max_connections: int | None, idle_expiry: float) -> None:
        self._max = max_connections
        self._idle_expiry = idle_expiry
        self._idle: dict[Route, OrderedDict[Connection, None]] = {}  # of each route, the longest idle first
        self._all_idle: OrderedDict[Connection, None] = OrderedDict()  # the longest idle first
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._closed = False
        self.slots_taken = 0

    @property
    def idle_count(self) -> int:
        """How many connections are idle."""
        return len(self._all_idle)

    async def acquire(self, route: Route, connect: Callable[[Route], Awaitable[Connection]]) -> Connection:
        """A connection that the caller owns from now on: an idle one, or one that ``connect`` opens.

        Waits in line where there is no slot. Cancelling it gives up whatever it had been granted.
        """
        self._close_expired()
        connection = self._take_idle(route)
        if connection is not None:
            return connection
        if self._max is None or self.slots_taken < self._max:
            self.slots_taken += 1
        elif self._all_idle:
            self._forget_idle(next(iter(self._all_idle))).close()  # its slot is ours
        else:
            connection = await self._wait_in_line(route)
            if connection is not None:
                if not connection.is_stale():
                    return connection
                connection.close()
        try:
            return await connect(route)
        except BaseException:
            self._free_slot()
            raise

    async def _wait_in_line(self, route: Route) -> Connection | None:
        waiter = _Waiter(route)
        self._waiters[waiter] = None
        try:
            await waiter.event.wait()
        except BaseException:
            if not waiter.granted:
                del self._waiters[waiter]
            elif waiter.connection is not None:
                self.give_back(waiter.connection)
            else:
                self._free_slot()
            raise
        return waiter.connection

    def give_back(self, connection: Connection) -> None:
        """The owner is done with a connection that is ready for another request."""
        if self._closed:
            self.discard(connection)
            return
        if self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            if waiter.route == connection.route:
                waiter.grant(connection)
            else:
                connection.close()
                waiter.grant(None)
            return
        connection.idle_since = trio.current_time()
        self._all_idle[connection] = None
        self._idle.setdefault(connection.route, OrderedDict())[connection] = None

    def discard(self, connection: Connection) -> None:
        """The owner is done with a connection that nobody can use again: it is closed."""
        connection.close()
        self._free_slot()

    def _free_slot(self) -> None:
        if self._waiters:
            waiter, _ = self._waiters.popitem(last=False)
            waiter.grant(None)
        else:
            self.slots_taken -= 1

    def _take_idle(self, route: Route) -> Connection | None:
        idle = self._idle.get(route)
        while idle:
            connection = self._forget_idle(next(reversed(idle)))
            if not connection.is_stale():
                return connection
            self.discard(connection)
        return None

    def _forget_idle(self, connection: Connection) -> Connection:
        del self._all_idle[connection]
        idle = self._idle[connection.route]
        del idle[connection]
        if not idle:
            del self._idle[connection.route]
        return connection

    def _close_expired(self) -> None:
        if not self._all_idle:
            return
        horizon = trio.current_time() - self._idle_expiry
        while self._all_idle and next(iter(self._all_idle)).idle_since <= horizon:
            self.discard(self._forget_idle(next(iter(self._all_idle))))

    def close(self) -> None:
        """Close every idle connection, and from now on each that is given back. Idempotent."""
        self._closed = True
        while self._all_idle:
            self.discard(self._forget_idle(next(iter(self._all_idle))))
