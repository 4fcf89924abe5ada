"""The client for programs that use asyncio: the calls of `meshcache.Client`, awaited.

async with Client() as client:
    await client.set("name", b"a page")
    pages = await asyncio.gather(client.get("name"), client.get("other"))
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast, overload

from . import client as blocking
from . import events
from ._memory.region import Region
from ._wire import protocol
from ._wire.deadline import Deadline, EndableDeadline, Ending
from .arguments import checked_timeout, keys_of, waiting_ms
from .events import PageEvent

__all__ = ["Client", "PageEventStream"]

#: Calls of one client that are under way at once. The time of a call that waits for its turn runs already.
MAX_CALLS: Final = 64

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_current = threading.local()
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class _Threaded(blocking.Client):
    """A client whose calls are made by threads, and may be ended by others. It attaches with its first call."""

    _required: bool

    def _start(self, required: bool) -> None:
        self._required = required

    def attach(self) -> None:
        """Attaches to the node, as the constructor of the base class does."""
        super()._start(self._required)

    def _deadline(self, timeout: float | None) -> Deadline:
        return EndableDeadline(self._settings.timeout if timeout is None else checked_timeout(timeout), _current.ending)


def _awaited(
    method: Callable[Concatenate[blocking.Client, _Arguments], _Result],
) -> Callable[Concatenate[Client, _Arguments], Coroutine[Any, Any, _Result]]:
    """The method of the blocking client as a coroutine function."""

    @functools.wraps(method)
    async def call(self: Client, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        return await self._call(functools.partial(method, self._client, *arguments, **named))

    return call


def _made_as(
    method: Callable[Concatenate[blocking.Client, _Arguments], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Client, _Arguments], None]]:
    """Gives a constructor the arguments of the blocking client's."""
    return cast(Callable[[Any], Any], functools.wraps(method, assigned=("__doc__",), updated=()))


class Client:
    """Reads and writes pages of a node on this host, like `meshcache.Client`: its methods have the same names, arguments
    and results, and are awaited. Any number of tasks may share it.

    `async with Client(...) as client`, or `client = await Client(...)`, attaches at once, and raises what
    `required=True` asks for; without either, the first call attaches. Up to 64 calls are under way at a time.

    A call that is cancelled ends before CancelledError is raised: the node no longer touches its memory then, and neither
    does this process. Other calls go on. What a cancelled `set` or `delete` has done is unknown.
    """

    @_made_as(blocking.Client.__init__)
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._client = _Threaded(*arguments, **named)
        self._closing = asyncio.Event()
        self._start_threads()
        _clients.add(self)

    def _start_threads(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_CALLS, "meshcache-call")

    def __await__(self) -> Generator[Any, None, Client]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Client:
        await self._call(self._client.attach)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection and releases all regions. Other calls under way end as misses."""
        self._closing.set()
        await asyncio.shield(asyncio.wrap_future(_in_thread(self._client.close)))
        self._threads.shutdown(wait=False)

    set_fingerprint = _awaited(blocking.Client.set_fingerprint)
    tell_fingerprint = _awaited(blocking.Client.tell_fingerprint)
    register = _awaited(blocking.Client.register)
    register_fd = _awaited(blocking.Client.register_fd)
    unregister = _awaited(blocking.Client.unregister)
    get_into = _awaited(blocking.Client.get_into)
    set_from = _awaited(blocking.Client.set_from)
    get = _awaited(blocking.Client.get)
    get_many = _awaited(blocking.Client.get_many)
    set = _awaited(blocking.Client.set)
    set_many = _awaited(blocking.Client.set_many)
    exists_many = _awaited(blocking.Client.exists_many)
    exists_prefix = _awaited(blocking.Client.exists_prefix)
    count_lookup = _awaited(blocking.Client.count_lookup)
    delete_many = _awaited(blocking.Client.delete_many)
    pin = _awaited(blocking.Client.pin)
    end_pins = _awaited(blocking.Client.end_pins)
    unpin = _awaited(blocking.Client.unpin)
    tell = _awaited(blocking.Client.tell)
    clear = _awaited(blocking.Client.clear)
    ping = _awaited(blocking.Client.ping)
    stat = _awaited(blocking.Client.stat)
    stats = _awaited(blocking.Client.stats)

    @overload
    async def exists(self, keys: str | bytes, *, pool: str = "kv", timeout: float | None = None) -> bool:
        ...

    @overload
    async def exists(
        self, keys: Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> int:
        ...

    @functools.wraps(blocking.Client.exists)
    async def exists(self, keys: Any, **named: Any) -> bool | int:
        return await self._call(functools.partial(self._client.exists, keys, **named))

    @overload
    async def delete(self, keys: str | bytes, *, pool: str = "kv", timeout: float | None = None) -> bool:  # type: ignore[misc]  # a string is a sequence of strings
        ...

    @overload
    async def delete(
        self, keys: Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> list[bool]:
        ...

    @functools.wraps(blocking.Client.delete)
    async def delete(self, keys: Any, **named: Any) -> bool | list[bool]:
        return await self._call(functools.partial(self._client.delete, keys, **named))

    _prefetch = _awaited(blocking.Client.prefetch)

    @functools.wraps(blocking.Client.prefetch)
    async def prefetch(
        self,
        keys: Sequence[str] | Sequence[bytes],
        *,
        by: float = 0,
        wait: bool = True,
        pool: str = "kv",
        timeout: float | None = None,
    ) -> list[bool]:
        later_ms = waiting_ms(by, "by") - protocol.PREFETCH_LEAD_MS
        if wait and later_ms > 0:
            # No thread waits meanwhile.
            keys_of(keys, pool)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closing.wait(), later_ms / 1000)
                return [False] * len(keys)
            by = protocol.PREFETCH_LEAD_MS / 1000
        return await self._prefetch(keys, by=by, wait=wait, pool=pool, timeout=timeout)

    def page_events(self, after: str | None = None, *, pools: Sequence[str] = ("kv",)) -> PageEventStream:
        """Events of the pages of this client's namespace on its node, as `meshcache.Client.page_events` gives them.

        async for event in client.page_events():
            ...
        """
        return PageEventStream(self._client.page_events(after, pools=pools))

    async def is_responsive(self) -> bool:
        """Whether the node answers, for callers that prefer a miss to waiting. It may take 50 ms to find out."""
        return await self._call(lambda: self._client.is_responsive)

    @property
    def process_memory(self) -> Region:
        """All memory of this process as a region that need not be registered. Offsets in it are addresses."""
        return self._client.process_memory

    @property
    def is_connected(self) -> bool:
        """Whether the client is attached to a node now."""
        return self._client._link.attachment is not None and self._client.is_connected

    @property
    def mode(self) -> str:
        """How pages of the largest region move now: "direct", "staged" or "bytes"; "none" without a node."""
        return self._client.mode if self.is_connected else "none"

    @property
    def node_id(self) -> str | None:
        """Name of the node, or None without one."""
        return self._client.node_id if self.is_connected else None

    async def _call(self, function: Callable[[], _Result]) -> _Result:
        """Has a thread make a call. If this is cancelled, the call is ended first."""
        self._client._check_open()
        ending = Ending()
        job = self._threads.submit(_run, ending, function)
        try:
            return await asyncio.shield(asyncio.wrap_future(job))
        except asyncio.CancelledError:
            if not job.cancel():
                ending.end()
                await _end(job)
                if job.exception() is None and isinstance(region := job.result(), Region):
                    # Nobody else knows of this region.
                    await _end(_in_thread(functools.partial(self._client.unregister, region)))
            raise
        except GeneratorExit:
            # The event loop has ended, and nothing can be awaited.
            if not job.cancel():
                ending.end()
                wait([job])
            raise


class PageEventStream:
    """An asynchronous iterator over page events, made by `Client.page_events`. Tasks may share it; each event goes to
    one of them. An event that a cancelled task was waiting for goes to the next one.

    It waits while nothing happens, and reattaches by itself. It ends when it, or its client, is closed.
    """

    def __init__(self, stream: events.PageEventStream) -> None:
        self._stream = stream
        self._lock = asyncio.Lock()
        self._next: Future[PageEvent | None] | None = None

    def __aiter__(self) -> PageEventStream:
        return self

    async def __anext__(self) -> PageEvent:
        """The next event. Raises what the blocking iterator raises."""
        async with self._lock:
            if self._next is None:
                self._next = _in_thread(lambda: next(self._stream, None))
            with contextlib.suppress(Exception):
                await asyncio.shield(asyncio.wrap_future(self._next))
            ended, self._next = self._next, None
        event = ended.result()
        if event is None:
            raise StopAsyncIteration
        return event

    @property
    def is_connected(self) -> bool:
        """Whether the stream is connected to a node, as far as is known. If not, the last list may be out of date."""
        return self._stream.is_connected

    async def close(self) -> None:
        """Ends the stream, even for a task that waits for an event."""
        await asyncio.shield(asyncio.wrap_future(_in_thread(self._stream.close)))

    async def __aenter__(self) -> PageEventStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _run(ending: Ending, function: Callable[[], _Result]) -> _Result:
    _current.ending = ending
    return function()


def _in_thread(function: Callable[[], _Result]) -> Future[_Result]:
    """Calls a function in a thread of its own, which may wait forever and does not keep the program alive."""
    job: Future[_Result] = Future()

    def run() -> None:
        try:
            job.set_result(_run(Ending(), function))
        except BaseException as error:
            job.set_exception(error)

    threading.Thread(target=run, name="meshcache-wait", daemon=True).start()
    return job


async def _end(job: Future[Any]) -> None:
    """Waits until a thread has done a job, also while the task is cancelled."""
    ended = asyncio.wrap_future(job)
    while not ended.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended])
    ended.exception()


def _after_fork() -> None:
    for client in list(_clients):
        client._start_threads()


os.register_at_fork(after_in_child=_after_fork)
