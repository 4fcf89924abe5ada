"""Hints that requests of SGLang carry, and the pages that they are about."""

from __future__ import annotations

import weakref
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshcache import Client
from meshcache._engines.advice import Advice
from meshcache._engines.complaints import Complaints
from meshcache._engines.hints import SessionHint, read_hints

from . import framework
from .guard import guarded
from .memory import attribute
from .pool import HostPool

#: Field of a request's ``custom_params`` with hints, best as JSON text, because the values are declared as not nested.
#: SGLang's OpenAI server has no other field for hints.
FIELD: Final = "kv_hints"
#: Keys of pages that are remembered by their first 64 bits, which is all that routers know of them.
_KNOWN_KEYS: Final = 1 << 16
_SHORT_DIGITS: Final = 16
_SHORT_MASK: Final = (1 << 64) - 1
#: Requests that are remembered until their ends.
_MAX_REQUESTS: Final = 16_384

#: The client, if it may be used now, and the pools that have pages.
Pools = Callable[[], tuple[Client | None, Sequence[HostPool]]]

_living: weakref.WeakSet[RequestHints] = weakref.WeakSet()


def request_begins(request: Any, tree: Any) -> None:
    """Called by the hook when the scheduler is about to look for a request's pages, possibly several times."""
    for hints in list(_living):
        hints.begin(request, tree)


def request_ends(request: Any) -> None:
    """Called by the hook when a request has finished, possibly several times."""
    for hints in list(_living):
        hints.end(request)


class _Node:
    """The node, as hints use it."""

    def __init__(self, pools: Any) -> None:
        self._pools = weakref.WeakMethod(pools)

    def tell(self, hint: SessionHint, keys: Sequence[str], shared: int) -> None:
        """Tells what a session does next. Keys of all pools are told before the time of its next request."""
        client, pools = self._now()
        for number, pool in enumerate(pools):
            is_last = number == len(pools) - 1
            assert client is not None
            client.tell(
                hint.session,
                pool.keys(keys),
                waiting=hint.waiting if is_last else None,
                branched=hint.branched and number == 0,
                ended=hint.ended and is_last,
                shared=shared * max(1, len(pool.parts)),
                pool=pool.key_pool,
            )

    def prefetch(self, keys: Sequence[str], by: float) -> None:
        """Brings pages to the node, in ``by`` seconds at the latest."""
        client, pools = self._now()
        for pool in pools:
            assert client is not None
            client.prefetch(pool.keys(keys), by=by, pool=pool.key_pool)

    def _now(self) -> tuple[Client | None, Sequence[HostPool]]:
        pools = self._pools()
        client, found = (None, ()) if pools is None else pools()
        return client, found if client is not None else ()


@dataclass(frozen=True)
class _Request:
    session: SessionHint | None
    page_size: int
    is_bigram: bool


class RequestHints:
    """The hints of all active requests of one storage. No method raises. The scheduler calls ``begin`` and ``end``."""

    def __init__(self, pools: Pools, complaints: Complaints) -> None:
        """``pools`` is a method, and its object is not kept alive."""
        self.complaints = complaints
        self._advice: Advice[str] = Advice(_Node(pools), complaints)
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        self._known: OrderedDict[int, str] = OrderedDict()
        #: Whether any request has carried hints: without them, nothing is remembered.
        self._is_hinted = False
        weakref.finalize(self, self._advice.end)
        _living.add(self)

    @guarded(lambda *_, **__: None)
    def begin(self, request: Any, tree: Any) -> None:
        """Called when the scheduler is about to look for a request's pages."""
        parameters = attribute(attribute(request, "sampling_params"), "custom_params")
        inner = parameters.get(FIELD) if isinstance(parameters, dict) else None
        own = attribute(request, "kv_hints")
        if (own is None and inner is None) or request.rid in self._requests:
            return
        hints, problem = read_hints(own, inner)
        if problem:
            self.complaints.log("hints", f"hints of a request are ignored: {problem}")
        if hints is None:
            return
        self._is_hinted = True
        is_bigram = bool(attribute(attribute(tree, "tree_core"), "is_eagle"))
        self._requests[request.rid] = _Request(hints.session, int(attribute(tree, "page_size") or 1), is_bigram)
        while len(self._requests) > _MAX_REQUESTS:
            self._requests.popitem(last=False)
        if hints.session is not None:
            self._advice.begins(hints.session.session)
        self._advice.fetch([key for block in hints.blocks if (key := self._key_of(block)) is not None])

    @guarded(lambda *_, **__: None)
    def end(self, request: Any) -> None:
        """Called when a request has finished."""
        known = self._requests.pop(request.rid, None)
        session = None if known is None else known.session
        if known is None or session is None:
            return
        # The last token of the answer has no KV.
        tokens = array("q", request.origin_input_ids)
        tokens.extend(request.output_ids)
        namespace = request.extra_key, attribute(request, "cache_salt")

        page_size, is_bigram = known.page_size, known.is_bigram

        def keys() -> list[str]:
            return framework.page_keys(tokens[:-1], *namespace, page_size=page_size, is_bigram=is_bigram)

        self._advice.tell(session, keys, session.shared_tokens // page_size)

    def note(self, keys: Sequence[str]) -> None:
        """Records keys of pages that the engine looks for. Any thread may call it."""
        if not self._is_hinted:
            return
        for key in keys:
            try:
                self._known[int(key[:_SHORT_DIGITS], 16)] = key
            except ValueError:
                continue
        while len(self._known) > _KNOWN_KEYS:
            self._known.popitem(last=False)

    def _key_of(self, block: int | str) -> str | None:
        """The key of a page by its hash; None: it is not known."""
        if isinstance(block, int):
            return self._known.get(block & _SHORT_MASK)
        return block.removeprefix("0x") or None
