"""The client through which Python programs use a node."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import stat as stat_module
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count, repeat
from time import monotonic
from types import TracebackType
from typing import Any, Final, cast, overload

from ._memory.memory import Backing, Memory, find_backing, is_writable, mapping_of
from ._memory.region import Region, process_memory
from ._moves.transfer import Transfer
from ._wire import protocol
from ._wire.deadline import Deadline
from ._wire.late_calls import LateCalls, watched
from ._wire.namespace import Namespace
from .arguments import (
    Hint,
    Priority,
    bytes_pool,
    checked_keys,
    checked_text,
    checked_timeout,
    expiry_ms,
    flat_view,
    hint_number,
    keys_of,
    main_pool,
    name_of,
    page_count,
    pin_milliseconds,
    priority_number,
    waiting_ms,
)
from .attachment import Attachment
from .counters import Counters
from .errors import ClosedError, Denied, NotAvailable, RegionError
from .events.stream import MAX_POOLS, PageEventStream
from .link import Link
from .pages import Pages, Piece, as_lists, check_apart, pages_by_pieces
from .requests import Requests, Told
from .settings import DEFAULT_STAGING_BYTES, Mode, Settings, default_socket, default_token_file

#: Longest wait for the node's own statistics.
_STATS_SECONDS: Final = 1.0
_client_ids = count(1)
_counters_of: weakref.WeakSet[Counters] = weakref.WeakSet()


class Client:
    """Reads and writes pages of a node on this host. Threads may share it.

    A page that is absent, or cannot be read in time, is a miss: False, None or 0. Only mistakes of the caller raise:
    TypeError, ValueError and subclasses of `meshcache.Error`. An absent, frozen or restarting node is no such mistake.
    """

    #: This value remains if the constructor rejects its arguments.
    _closed = True

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        namespace: Namespace | Mapping[str, Any] | None = None,
        name: str | None = None,
        mode: Mode = "auto",
        timeout: float = 5.0,
        connect_timeout: float = 1.0,
        required: bool = False,
        end_frozen_node: bool = True,
        fence_timeout: float = 1.0,
        staging_bytes: int = DEFAULT_STAGING_BYTES,
        logger: logging.Logger | None = None,
        on_fingerprint: Callable[[str | None], None] | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Attaches to the node at `socket`, now or as soon as there is one.

        socket           default: $MESHCACHE_SOCKET, or else the default socket of `meshcache node`
        namespace        namespace of the pages, or a mapping such as {"model_name": ..., "tag": ...}; None: that of the
                         node's configuration. Pages are named (the newest content wins) unless it says `computed`
        name             identifies the client in the node's logs and metrics
        mode             how pages of regions move. "direct": the node itself reads and writes the memory. "staged": via
                         memory of the node. "bytes": on the socket. "auto": the first of these that is possible and
                         safe. If the given mode is not possible, another one is used, and a WARNING is logged
        timeout          longest duration of a call in seconds, unless the call has its own timeout
        required         raise NotAvailable if there is no node now, and Denied if the node denies this client access
        end_frozen_node  in direct mode, kill a node that has not released memory `fence_timeout` seconds after the
                         deadline. If False, "auto" does not use direct mode, and "direct" blocks until the node ends
        on_fingerprint   called in a thread of its own when this client is told the fingerprint of its weights
                         (`meshcache fingerprint`); None: the client switches to it, as with `set_fingerprint`
        token            identifies this client as a user of the node (its `users_file`); None: see `token_file`
        token_file       file with the token, read at each attempt to attach; None: $MESHCACHE_TOKEN_FILE, if it is set
        """
        self._settings = Settings(
            socket=default_socket() if socket is None else os.fspath(socket),
            namespace=Namespace.of(namespace),
            name="python" if name is None else name,
            mode=mode,
            timeout=timeout,
            connect_timeout=connect_timeout,
            end_frozen_node=end_frozen_node,
            fence_timeout=fence_timeout,
            staging_bytes=staging_bytes,
            logger=logging.getLogger("meshcache") if logger is None else logger,
            token=token,
            token_file=default_token_file() if token_file is None else os.fspath(token_file),
        )
        self._id = next(_client_ids)
        self._region_ids = count(1)
        self._process_memory = process_memory(self._id, next(self._region_ids))
        self._counters = Counters()
        _counters_of.add(self._counters)
        self._late_calls = LateCalls(self._settings)
        self._link = Link(self._settings, self._counters, on_fingerprint or _follower(self))
        self._requests = Requests(self._settings, self._counters)
        self._transfer = Transfer(self._link, self._requests, self._counters)
        self._streams: weakref.WeakSet[PageEventStream] = weakref.WeakSet()
        self._closed = False
        self._closing = threading.Event()
        self._start(required)

    def _start(self, required: bool) -> None:
        self._link.start()
        if required and not self.is_connected:
            problem = self._link.problem or "it does not answer"
            # If the node refuses, its answer already says what to do.
            advice = "" if self._link.is_refused else "; start one with: meshcache node"
            self.close()
            kind = Denied if self._link.is_denied else NotAvailable
            raise kind(f"no node at {self._settings.socket}: {problem}{advice}")

    # Namespace

    def set_fingerprint(self, fingerprint: str | None) -> None:
        """Switches to the pages of other weights. From now on, the namespace has this fingerprint; None: it has none.

        Calls in progress end as misses. Later calls are misses until the client is attached again, which takes some
        milliseconds, or longer next to busy threads. Raises ValueError if the fingerprint is invalid, or if the client
        uses the namespace in the node's configuration.
        """
        self._check_open()
        # If two threads call this at once, the client and its link must end up with the same fingerprint.
        with self._link.changing:
            namespace = self._settings.namespace
            if namespace is None:
                raise ValueError(
                    "set_fingerprint: this client uses the namespace in the node's configuration; make it with a namespace of its own"
                )
            if fingerprint == namespace.fingerprint:
                return
            self._settings = dataclasses.replace(
                self._settings, namespace=dataclasses.replace(namespace, fingerprint=fingerprint)
            )
            self._link.use(self._settings)

    def tell_fingerprint(self, client: str, fingerprint: str | None, *, timeout: float | None = None) -> int | None:
        """Tells attached clients with this name, such as an engine whose weights have changed, their new fingerprint.

        Returns the number of clients told, or None if the node does not answer. Raises NotAvailable if it is too old.
        """
        attachment = self._attachment()
        if attachment is not None and not attachment.hello.capabilities & protocol.CAN_TELL_FINGERPRINTS:
            hello = attachment.hello
            raise NotAvailable(
                f"node {hello.node_id} has version {hello.package_version}, which cannot tell clients their fingerprint; "
                "update the node"
            )
        answer = self._ask(protocol.FINGERPRINT, protocol.fingerprint_body(client, fingerprint), timeout)
        return None if answer is None else int.from_bytes(answer, "little")

    # Regions

    def register(
        self, memory: object, length: int | None = None, *, writable: bool | None = None, name: str = ""
    ) -> Region:
        """Registers memory without copying it: an object with the buffer protocol, or a descriptor and a length, also
        as a tuple (fd, length).

        `writable`: whether GET may write into it; default: if it is writable. The object is in use until `unregister`.
        """
        self._check_open()
        if isinstance(memory, tuple):
            if len(memory) != 2 or length is not None or not all(isinstance(part, int) for part in memory):
                raise TypeError(f"a descriptor must be given as (fd, length), two integers; got {memory!r}")
            memory, length = memory
        if isinstance(memory, int):
            if length is None:
                raise TypeError("a descriptor needs a length: register(fd, length=...)")
            return self.register_fd(memory, length, writable=writable, name=name)
        held = Memory(memory)
        if length is not None and length != held.length:
            raise ValueError(f"length is for descriptors; the memory has {held.length} bytes, not {length}")
        if held.length < 1:
            raise ValueError("a region has at least 1 byte")
        if writable and held.readonly:
            raise ValueError("the memory is read-only: register it with writable=False, for SET alone")
        may_write = not held.readonly if writable is None else writable
        backing = find_backing(held)
        if backing is not None and may_write and not backing.writable:
            os.close(backing.descriptor)
            backing = None
        return self._add_region(name, held.length, may_write, held, backing)

    def register_fd(
        self, fd: int, length: int, *, memory: object = None, writable: bool | None = True, name: str = ""
    ) -> Region:
        """Registers the first `length` bytes of a file or memfd. `memory` is the caller's own mapping of it, if any.

        `writable` None: if the descriptor is. The descriptor is duplicated, so the caller may close it.
        """
        self._check_open()
        try:
            state = os.fstat(fd)
        except OSError as error:
            raise ValueError(f"{fd} is not an open descriptor: {error}") from None
        if not stat_module.S_ISREG(state.st_mode):
            raise ValueError(f"descriptor {fd} is not that of a regular file or memfd")
        if not 0 < length <= state.st_size:
            raise ValueError(f"length must be 1 to {state.st_size}, the size of the file; got {length}")
        may_write = is_writable(fd) if writable is None else writable
        if may_write and not is_writable(fd):
            raise ValueError(f"descriptor {fd} is not open for writing: register it with writable=False, for SET alone")
        held: Memory | None = None
        if memory is not None:
            held = Memory(memory)
            if held.length < length:
                raise ValueError(f"the memory has {held.length} bytes, fewer than {length}")
            mapping = mapping_of(held.address, length)
            if mapping is None or mapping.inode != state.st_ino or mapping.offset != 0:
                raise ValueError(f"the memory is not a shared mapping of the start of descriptor {fd}")
        backing = Backing(os.dup(fd), 0, is_writable(fd))
        return self._add_region(name, length, may_write, held, backing)

    def unregister(self, region: Region) -> None:
        """Releases a region. Returns when the node has released it, or after the timeout. No call may be using it."""
        if not isinstance(region, Region):
            raise TypeError(f"unregister takes a Region that register has returned, got {region!r}")
        if region.client_id != self._id or region is self._process_memory:
            raise RegionError(f"{region!r} is not registered with this client")
        self._link.remove_region(region, self._deadline(None))
        region.release()

    @property
    def process_memory(self) -> Region:
        """All memory of this process as a region that need not be registered. Offsets in it are addresses.

        Use it for pages at arbitrary addresses. The node cannot map them, so they move through staging memory or on the
        socket. Addresses are not checked: an unmapped one crashes the process.
        """
        return self._process_memory

    # Pages in regions

    @watched
    def get_into(
        self,
        keys: Sequence[str] | Sequence[bytes],
        pages: Sequence[Piece] | Sequence[Sequence[Piece]],
        *,
        pool: str = "kv",
        hint: Hint = 0,
        timeout: float | None = None,
    ) -> list[bool]:
        """Reads pages into regions. A page is a sequence of pieces, or a single piece.

        True means that the memory holds exactly the page; with False its content is undefined. When this returns, all
        memory belongs to the caller again.

        `hint`, here and below: "closed" says that the conversation of these pages is over, "open" that it goes on; the
        node evicts the former first. Other values have meanings of the caller's own, which the node learns as well.
        """
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        told = Told(pool, hint=hint_number(hint))
        return self._move(keys, pages, told, deadline, writing=True)

    @watched
    def set_from(
        self,
        keys: Sequence[str] | Sequence[bytes],
        pages: Sequence[Piece] | Sequence[Sequence[Piece]],
        *,
        pool: str = "kv",
        named: bool | None = None,
        hint: Hint = 0,
        expires_in: float | None = None,
        priority: Priority = "normal",
        timeout: float | None = None,
    ) -> list[bool]:
        """Writes pages from regions. If `named`, a key may be set again, and the newest page wins; otherwise the key is
        computed from the content. Default: as the namespace says.

        `expires_in`, here and below: seconds, up to ten years, after which no node finds the pages; None: never. A
        named page that is set again has the expiry of the new call; for a computed one that exists, the later expiry
        counts. Raises NotAvailable if the node is too old for this.

        `priority`, here and below: the node evicts "low" pages from memory before all others, and "high" ones after all
        others while those take at most half of the room. The latest call counts. The priority is a hint that applies to
        neither the disk nor other nodes.
        """
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        told = self._told_of_set(pool, named, hint, expires_in, priority)
        return self._move(keys, pages, told, deadline, writing=False)

    # Pages as bytes

    def get(self, key: str | bytes, *, pool: str = "kv", hint: Hint = 0, timeout: float | None = None) -> bytes | None:
        """Reads the page of a key; None on a miss."""
        return self.get_many(_alone(key), pool=pool, hint=hint, timeout=timeout)[0]

    @watched
    def get_many(
        self,
        keys: Sequence[str] | Sequence[bytes],
        *,
        pool: str = "kv",
        hint: Hint = 0,
        timeout: float | None = None,
    ) -> list[bytes | None]:
        """Reads the page of each key; None on a miss."""
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        told = Told(pool, hint=hint_number(hint))
        attachment = self._attachment()
        if attachment is None or not keys:
            return [None] * len(keys)
        return self._transfer.fetch(attachment, keys, told, deadline)

    def set(
        self,
        key: str | bytes,
        data: object,
        *,
        named: bool | None = None,
        pool: str = "kv",
        hint: Hint = 0,
        expires_in: float | None = None,
        priority: Priority = "normal",
        timeout: float | None = None,
    ) -> bool:
        """Sets a page from an object with the buffer protocol. `named`, `expires_in`, `priority`: as in set_from."""
        return self.set_many(
            _alone(key),
            [data],
            named=named,
            pool=pool,
            hint=hint,
            expires_in=expires_in,
            priority=priority,
            timeout=timeout,
        )[0]

    @watched
    def set_many(
        self,
        items: Mapping[str, object] | Mapping[bytes, object] | Sequence[str] | Sequence[bytes],
        datas: Sequence[object] | None = None,
        *,
        named: bool | None = None,
        pool: str = "kv",
        hint: Hint = 0,
        expires_in: float | None = None,
        priority: Priority = "normal",
        timeout: float | None = None,
    ) -> list[bool]:
        """Sets pages, given as a mapping from keys to pages, or as keys and pages. One result per key."""
        deadline = self._deadline(timeout)
        if isinstance(items, Mapping):
            if datas is not None:
                raise TypeError("set_many takes a mapping, or keys and pages; not both")
            datas = list(items.values())
            items = cast(Sequence[str] | Sequence[bytes], list(items))
        keys, pool = keys_of(items, pool)
        told = self._told_of_set(pool, named, hint, expires_in, priority)
        if datas is None or len(datas) != len(keys):
            raise ValueError(f"{len(keys)} keys need as many pages, got {0 if datas is None else len(datas)}")
        views = [flat_view(data) for data in datas]
        attachment = self._attachment()
        if attachment is None or not keys:
            return [False] * len(keys)
        told.check(attachment.hello)
        return self._transfer.store(attachment, keys, views, told, deadline)

    # Keys

    @overload
    def exists(self, keys: str | bytes, *, pool: str = "kv", timeout: float | None = None) -> bool:
        ...

    @overload
    def exists(self, keys: Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None) -> int:
        ...

    def exists(
        self, keys: str | bytes | Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> bool | int:
        """Length of the leading run of keys that exist; for a single key, whether it exists."""
        if isinstance(keys, (str, bytes)):
            return self.exists_prefix(_alone(keys), pool=pool, timeout=timeout) == 1
        return self.exists_prefix(keys, pool=pool, timeout=timeout)

    @watched
    def exists_many(
        self,
        keys: Sequence[str] | Sequence[bytes],
        *,
        suffixes: Sequence[str] = (),
        pool: str = "kv",
        counted: bool | None = None,
        timeout: float | None = None,
    ) -> list[bool]:
        """Says which keys exist. With suffixes, a key exists if key + suffix exists for each suffix.

        `counted`, here and below, says whether this counts as a lookup in `stats()` and in the node's metrics: all keys
        as asked for, and the leading run of existing ones as found. Default: only in the pool "kv", because other pools
        are asked for the same pages.
        """
        return self._exists(keys, suffixes, pool, timeout, True, counted)[1]

    @watched
    def exists_prefix(
        self,
        keys: Sequence[str] | Sequence[bytes],
        *,
        suffixes: Sequence[str] = (),
        pool: str = "kv",
        counted: bool | None = None,
        timeout: float | None = None,
    ) -> int:
        """Length of the leading run of keys that exist."""
        return self._exists(keys, suffixes, pool, timeout, False, counted)[0]

    def count_lookup(self, asked: int, found: int) -> None:
        """Counts a lookup of `asked` pages, of which the first `found` existed.

        Use it in programs that look up one request in several calls, and make those calls with `counted=False`.
        """
        if not 0 <= found <= asked < 1 << 53:
            raise ValueError(
                f"found must be from 0 to asked, and asked below 2^53; got found={found!r}, asked={asked!r}"
            )
        attachment = self._attachment()
        self._counters.add_lookup(asked, found, is_told=False)
        self._tell_lookups(attachment)

    @overload
    def delete(self, keys: str | bytes, *, pool: str = "kv", timeout: float | None = None) -> bool:  # type: ignore[misc]  # a string is a sequence of strings
        ...

    @overload
    def delete(
        self, keys: Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> list[bool]:
        ...

    def delete(
        self, keys: str | bytes | Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> bool | list[bool]:
        """Removes pages from all nodes. True means that no node can read the page any more. One result per key; for a
        single key, the result alone."""
        if isinstance(keys, (str, bytes)):
            return self.delete_many(_alone(keys), pool=pool, timeout=timeout)[0]
        return self.delete_many(keys, pool=pool, timeout=timeout)

    @watched
    def delete_many(
        self, keys: Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> list[bool]:
        """Removes pages from all nodes. One result per key: True if no node can read the page any more."""
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        attachment = self._attachment()
        if attachment is None or not keys:
            return [False] * len(keys)
        return self._requests.per_key(attachment, protocol.DELETE, protocol.text16(pool), keys, deadline)

    @watched
    def pin(
        self,
        keys: Sequence[str] | Sequence[bytes],
        seconds: float | None = None,
        *,
        name: str | None = None,
        pool: str = "kv",
        timeout: float | None = None,
    ) -> list[bool]:
        """Pins pages in the node's pool for a time, so that they are not evicted. A page on disk or on another node is
        copied into the pool first. True for each pinned page; False if no node has the page, or if it would exceed the
        node's limit (`pin_max_share`).

        Pinning again extends the time. A pin ends after its time, with `unpin`, when this client disconnects, and when
        its page is deleted, cleared or overwritten. Raises ValueError for more seconds than the node allows
        (`pin_max_s`), and NotAvailable if the node is too old.

        With a `name` in place of `seconds`, such as that of a system prompt, the pages stay pinned until `end_pins`,
        even when this client's process ends; a restart of the node ends them.
        """
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        if (seconds is None) == (name is None):
            raise TypeError("pin takes either seconds or a name")
        if name is None:
            head = protocol.pin_head(pool, pin_milliseconds(cast(float, seconds)))
            attachment = self._able_attachment(protocol.CAN_PIN, "pin pages")
        else:
            head = protocol.pin_head(pool, 0, name_of(name, "name", protocol.MAX_PIN_NAME_BYTES))
            attachment = self._able_attachment(protocol.CAN_TELL_SESSIONS, "pin pages by name")
        if attachment is None or not keys:
            return [False] * len(keys)
        return self._requests.pin(attachment, head, keys, deadline)

    @watched
    def end_pins(self, name: str, *, timeout: float | None = None) -> int:
        """Ends the pins with a name, whoever has made them. Returns the number of pages that had it; 0 as well if the
        node does not answer. Raises NotAvailable if the node is too old."""
        body = protocol.text16(name_of(name, "name", protocol.MAX_PIN_NAME_BYTES))
        self._able_attachment(protocol.CAN_TELL_SESSIONS, "pin pages by name")
        answer = self._ask(protocol.END_PINS, body, timeout)
        return int.from_bytes(answer, "little") if answer is not None and len(answer) == 4 else 0

    @watched
    def unpin(
        self, keys: Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> list[bool]:
        """Ends pins of this client. True for each page that it had pinned. Raises NotAvailable for nodes too old."""
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        attachment = self._able_attachment(protocol.CAN_PIN, "pin pages")
        if attachment is None or not keys:
            return [False] * len(keys)
        return self._requests.per_key(attachment, protocol.UNPIN, protocol.text16(pool), keys, deadline)

    @watched
    def prefetch(
        self,
        keys: Sequence[str] | Sequence[bytes],
        *,
        by: float = 0,
        wait: bool = True,
        pool: str = "kv",
        timeout: float | None = None,
    ) -> list[bool]:
        """Brings pages from the node's disk, from other nodes or the object store into the node's pool, before they are
        read: in `by` seconds at the latest. Waits until that has been done, at most `by` and the timeout, and returns
        True for each page that is in the pool; without `wait` it returns at once, with False for all of them. Raises
        NotAvailable if the node is too old.
        """
        milliseconds = waiting_ms(by, "by")
        deadline = self._deadline((self._settings.timeout if timeout is None else checked_timeout(timeout)) + by)
        keys, pool = keys_of(keys, pool)
        attachment = self._able_attachment(protocol.CAN_TELL_SESSIONS, "prefetch pages")
        if wait and attachment is not None and milliseconds > protocol.PREFETCH_LEAD_MS:
            # The node would answer at once.
            later = (milliseconds - protocol.PREFETCH_LEAD_MS) / 1000
            if self._closing.wait(min(later, max(0, deadline - monotonic()))) or monotonic() >= deadline:
                return [False] * len(keys)
            milliseconds = protocol.PREFETCH_LEAD_MS
            attachment = self._able_attachment(protocol.CAN_TELL_SESSIONS, "prefetch pages")
        if attachment is None or not keys:
            return [False] * len(keys)
        head = protocol.prefetch_head(pool, milliseconds)
        if wait:
            return self._requests.per_key(attachment, protocol.PREFETCH, head, keys, deadline)
        self._requests.send_only(attachment, protocol.PREFETCH, lambda: head, keys, deadline)
        return [False] * len(keys)

    @watched
    def tell(
        self,
        session: str,
        keys: Sequence[str] | Sequence[bytes] = (),
        *,
        waiting: float | None = None,
        branched: bool = False,
        ended: bool = False,
        shared: int = 0,
        pool: str = "kv",
    ) -> bool:
        """Tells the node what a session, a conversation or a run of an agent, does next. A hint, which may be wrong.

        keys      pages of the session's present request, its head first; they belong to the session from now on
        waiting   seconds until its next request
        branched  the session goes on from `keys` alone; its other pages are of a branch that has ended
        ended     the session has no further request
        shared    number of pages at the head of `keys` that other sessions use as well

        Does not wait for an answer. False: no node is attached, or it takes no such hints.
        """
        milliseconds = None if waiting is None else waiting_ms(waiting, "waiting")
        session = name_of(session, "session", protocol.MAX_SESSION_BYTES)
        shared = page_count(shared, "shared")
        keys, pool = keys_of(keys, pool)
        attachment = self._attachment()
        if attachment is None or not attachment.hello.capabilities & protocol.CAN_TELL_SESSIONS:
            return False
        deadline = self._deadline(None)
        is_one = len(keys) <= attachment.hello.max_keys
        first = protocol.tell_head(pool, session, milliseconds if is_one else None, branched, ended and is_one, shared)
        heads = chain((first,), repeat(protocol.tell_head(pool, session, None)))
        self._requests.send_only(attachment, protocol.TELL, lambda: next(heads), keys, deadline)
        if not is_one:
            last = protocol.tell_head(pool, session, milliseconds, ended=ended)
            self._requests.send_only(attachment, protocol.TELL, lambda: last, (), deadline)
        return True

    @watched
    def clear(self, pools: Sequence[str] = (), *, timeout: float | None = None) -> bool:
        """Drops this node's pages of the namespace, in the pools that are in use and in `pools`."""
        body = protocol.clear_body([checked_text(pool, "pool") for pool in checked_keys(pools)])
        return self._ask(protocol.CLEAR, body, timeout) is not None

    # The node

    @watched
    def ping(self, *, timeout: float | None = None) -> bool:
        """Whether the node answers."""
        attachment = self._attachment()
        return attachment is not None and self._ask(protocol.PING, b"", timeout) == attachment.hello.boot_token

    @watched
    def stat(
        self, keys: Sequence[str] | Sequence[bytes], *, pool: str = "kv", timeout: float | None = None
    ) -> list[dict[str, Any] | None]:
        """Length and holders of each page; None for a page that does not exist."""
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        head = protocol.text16(pool)
        results: list[dict[str, Any] | None] = [None] * len(keys)
        attachment = self._attachment()
        if attachment is None:
            return results
        sent = self._requests.send(
            attachment,
            protocol.STAT,
            lambda: head,
            keys,
            lambda low, high: b"",
            deadline,
            max_keys=protocol.MAX_STAT_KEYS,
        )
        for low, high, call in sent:
            if self._requests.wait(attachment, call, deadline):
                found = _json(call.body)
                if isinstance(found, list) and len(found) == high - low:
                    results[low:high] = [entry if isinstance(entry, dict) else None for entry in found]
        return results

    def page_events(self, after: str | None = None, *, pools: Sequence[str] = ("kv",)) -> PageEventStream:
        """Events of the pages of this client's namespace on its node: first a list, then each change; or, with `after`,
        the changes since that position.

            for event in client.page_events():
                for key, pool, tier in event.changes:
                    print(key, tier or "gone")

        The iterator waits while nothing happens, and has its own connection. It outlives the node: after a restart it
        continues with a new list. `PageEvent` explains each kind of event. At most 8 pools are allowed. The iterator
        keeps the namespace that the client has now; make another one after `set_fingerprint`.
        """
        self._check_open()
        if after is not None:
            checked_text(after, "after")
        names = list(dict.fromkeys(checked_text(pool, "pool") or "kv" for pool in checked_keys(pools, "pools")))
        if not 1 <= len(names) <= MAX_POOLS:
            raise ValueError(f"pools must name 1 to {MAX_POOLS} pools, got {len(names)}")
        stream = PageEventStream(self._settings, after, names, [bytes_pool(name) for name in names])
        self._streams.add(stream)
        return stream

    def stats(self) -> dict[str, Any]:
        """The client's counters, how pages move, and, as "node", the node's counters for it (None without a node)."""
        if not self._closed:
            self._tell_lookups(self._link.current())
        body = self._ask(protocol.STATS, b"", min(_STATS_SECONDS, self._settings.timeout))
        node = None if body is None else _json(body)
        regions = [
            {"name": region.name, "length": region.length, "mode": region.mode}
            for region in list(self._link.regions.values())
        ]
        return {
            "connected": self.is_connected,
            "mode": self.mode,
            "node_id": self.node_id,
            "regions": regions,
            **self._counters.read(),
            "node": node if isinstance(node, dict) else None,
        }

    @property
    def is_connected(self) -> bool:
        """Whether the client is attached to a node now."""
        return not self._closed and self._link.current() is not None

    @property
    def is_responsive(self) -> bool:
        """Whether the node answers, for callers that prefer a miss to waiting, as in lookups.

        False if a request has been unanswered, and the node silent, for a quarter of a second, and a ping is not
        answered within 50 ms either. True for a node that is busy with a long request.
        """
        attachment = None if self._closed else self._link.current()
        return attachment is not None and attachment.connection.is_answering()

    @property
    def mode(self) -> str:
        """How pages of the largest region move now: "direct", "staged" or "bytes"; "none" without a node."""
        return "none" if self._closed else self._link.mode

    @property
    def node_id(self) -> str | None:
        """Name of the node, or None without one."""
        attachment = None if self._closed else self._link.current()
        return None if attachment is None else attachment.hello.node_id

    def close(self) -> None:
        """Ends the connection and releases all regions. Calls in other threads end as misses."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        for stream in list(self._streams):
            stream.close()
        self._link.stop()
        self._release_regions()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._link.stop(wait=False)
            self._release_regions()

    def _release_regions(self) -> None:
        for region in list(self._link.regions.values()):
            region.release()
        self._link.regions.clear()

    def _move(
        self,
        keys: Sequence[str],
        pages: Sequence[Piece] | Sequence[Sequence[Piece]],
        told: Told,
        deadline: Deadline,
        *,
        writing: bool,
    ) -> list[bool]:
        """Moves pages. `writing` says whether pages are written into the regions, as by GET."""
        move = self._transfer.read if writing else self._transfer.write
        pages = as_lists(pages)
        if len(pages) != len(keys):
            raise ValueError(f"{len(keys)} keys need as many pages, got {len(pages)}")
        groups = pages_by_pieces(pages)
        if len(groups) == 1:
            (pieces,) = groups
            plan = Pages(self._id, pages, pieces, writing=writing)
            attachment = self._attachment()
            if attachment is None:
                return [False] * len(keys)
            told.check(attachment.hello)
            return move(attachment, keys, plan, told, deadline)
        if writing:
            check_apart(self._id, pages)
        plans = [
            (indices, Pages(self._id, [pages[index] for index in indices], pieces, writing=writing))
            for pieces, indices in groups.items()
        ]
        results = [False] * len(keys)
        attachment = self._attachment()
        if attachment is None:
            return results
        told.check(attachment.hello)
        for indices, plan in plans:
            for index, result in zip(
                indices, move(attachment, [keys[index] for index in indices], plan, told, deadline)
            ):
                results[index] = result
        return results

    def _exists(
        self,
        keys: Sequence[str] | Sequence[bytes],
        suffixes: Sequence[str],
        pool: str,
        timeout: float | None,
        per_key: bool,
        counted: bool | None,
    ) -> tuple[int, list[bool]]:
        deadline = self._deadline(timeout)
        keys, pool = keys_of(keys, pool)
        suffixes = () if suffixes == () else tuple(checked_keys(suffixes, "suffixes"))
        if len(suffixes) > protocol.MAX_SUFFIXES:
            raise ValueError(f"{len(suffixes)} suffixes are too many: at most {protocol.MAX_SUFFIXES} are allowed")
        attachment = self._attachment()
        counts = main_pool(pool) if counted is None else counted
        prefix, flags, is_told = 0, [False] * len(keys), False
        if attachment is not None and keys:
            prefix, flags, is_told = self._requests.exists(attachment, keys, pool, suffixes, per_key, deadline, counts)
        if counts:
            self._counters.add_lookup(len(keys), prefix, is_told=is_told)
            if self._counters.has_untold:
                self._tell_lookups(attachment)
        return prefix, flags

    def _tell_lookups(self, attachment: Attachment | None) -> None:
        """Reports lookups that the node has not counted, without waiting. If that fails, they are reported later."""
        if attachment is None or not attachment.hello.capabilities & protocol.CAN_COUNT:
            return
        asked, found = self._counters.take_untold()
        if asked == 0:
            return
        if not attachment.connection.tell(protocol.LOOKUPS, protocol.lookups_body(asked, found), monotonic()):
            self._counters.leave_untold(asked, found)

    def _ask(self, type_: int, body: bytes, timeout: float | None) -> bytes | None:
        """Makes a request that has no keys. Returns the body of its answer, or None if it failed."""
        deadline = self._deadline(timeout)
        attachment = self._attachment()
        if attachment is None:
            return None
        call = attachment.connection.submit(type_, body, deadline)
        if call is None or not self._requests.wait(attachment, call, deadline):
            return None
        return call.body

    def _add_region(
        self, name: str, length: int, writable: bool, memory: Memory | None, backing: Backing | None
    ) -> Region:
        region = Region(self._id, next(self._region_ids), name, length, writable, memory, backing)
        self._link.add_region(region, monotonic() + self._settings.connect_timeout)
        return region

    def _attachment(self) -> Attachment | None:
        if self._closed:
            raise ClosedError("the client is closed; make another one")
        return self._link.current()

    def _able_attachment(self, capability: int, what: str) -> Attachment | None:
        """The attachment, if there is one. Raises NotAvailable if its node does not have the capability."""
        attachment = self._attachment()
        if attachment is not None and not attachment.hello.capabilities & capability:
            hello = attachment.hello
            raise NotAvailable(
                f"node {hello.node_id} has version {hello.package_version}, which cannot {what}; update the node"
            )
        return attachment

    def _told_of_set(
        self, pool: str, named: bool | None, hint: Hint, expires_in: float | None, priority: Priority
    ) -> Told:
        """What a call that sets pages tells the node. Raises TypeError and ValueError."""
        if named is None:
            namespace = self._settings.namespace
            named = namespace is None or not namespace.computed
        elif not isinstance(named, bool):
            raise TypeError(f"named must be True, False or None, got {named!r}")
        return Told(
            pool,
            named=named,
            hint=hint_number(hint),
            expires_in_ms=expiry_ms(expires_in),
            priority=priority_number(priority),
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the client is closed; make another one")

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._settings.timeout if timeout is None else checked_timeout(timeout))


def _follower(client: Client) -> Callable[[str | None], None]:
    """Switches the client to the fingerprint that it is told. The client's thread must not keep the client alive."""
    held = weakref.ref(client)

    def follow(fingerprint: str | None) -> None:
        client = held()
        if client is not None:
            client.set_fingerprint(fingerprint)

    return follow


def _alone(key: str | bytes) -> Sequence[str] | Sequence[bytes]:
    if isinstance(key, bytes):
        return [key]
    return [key]


def _json(body: bytes) -> object:
    try:
        return cast(object, json.loads(body))
    except (ValueError, RecursionError):
        return None


def _after_fork() -> None:
    for counters in list(_counters_of):
        counters.after_fork()


os.register_at_fork(after_in_child=_after_fork)
