"""Hints that requests of vLLM carry, and the chunks that they are about."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from meshcache._engines.advice import Advice
from meshcache._engines.complaints import Complaints
from meshcache._engines.hints import SessionHint, read_hints

#: Keys of chunks that are remembered by the last 64 bits of their hashes, which is all that routers know of them.
_KNOWN_KEYS: Final = 1 << 16
#: Bytes at the end of a key that are vLLM's cache group, not part of the hash.
_GROUP_BYTES: Final = 4
_SHORT_BYTES: Final = 8
#: Cache groups whose keys are tried for a hash that is given whole.
_MAX_GROUPS: Final = 16


@dataclass
class _Request:
    """A request of a session. The keys are those of its chunks, as far as vLLM names them."""

    hint: SessionHint
    context: Any
    keys: dict[bytes, None] = field(default_factory=dict)


class RequestHints:
    """The hints of all active requests. Only the scheduler may use it."""

    def __init__(self, advice: Advice[bytes], complaints: Complaints) -> None:
        self._advice = advice
        self._complaints = complaints
        self._requests: dict[str, _Request] = {}
        self._groups: dict[bytes, None] = {}
        self._known: OrderedDict[int, bytes] = OrderedDict()
        #: Whether any request has carried hints: without them, nothing is remembered.
        self._is_hinted = False

    def begin(self, context: Any) -> None:
        """Called when a request begins."""
        parameters = getattr(context, "kv_transfer_params", None)
        inner = parameters.get("kv_hints") if isinstance(parameters, dict) else None
        hints, problem = read_hints(getattr(context, "kv_hints", None), inner)
        if problem:
            self._complaints.log("hints", f"hints of a request are ignored: {problem}")
        if hints is None:
            return
        self._is_hinted = True
        if hints.session is not None:
            self._requests[getattr(context, "req_id", "")] = _Request(hints.session, context)
            self._advice.begins(hints.session.session)
        self._advice.fetch([key for block in hints.blocks for key in self._keys_of(block)])

    def note(self, context: Any, keys: Iterable[bytes]) -> None:
        """Records keys of a request's chunks."""
        if not self._is_hinted:
            return
        request = self._requests.get(getattr(context, "req_id", ""))
        for key in keys:
            self._groups[key[-_GROUP_BYTES:]] = None
            self._known[_short(key[:-_GROUP_BYTES])] = key
            if request is not None:
                request.keys[key] = None
        while len(self._known) > _KNOWN_KEYS:
            self._known.popitem(last=False)

    def end(self, context: Any) -> None:
        """Called when a request has ended."""
        request = self._requests.pop(getattr(context, "req_id", ""), None)
        if request is None:
            return
        positions = getattr(request.context, "_offload_key_positions", None)
        ends: dict[bytes, int] = positions if isinstance(positions, dict) else {}
        keys = list(dict.fromkeys([*ends, *request.keys]))
        keys.sort(key=lambda key: ends.get(key, 1 << 62))
        shared = sum(1 for key in keys if ends.get(key, 1 << 62) <= request.hint.shared_tokens)
        self._advice.tell(request.hint, lambda: keys, shared)

    def _keys_of(self, block: int | str) -> list[bytes]:
        if isinstance(block, int):
            known = self._known.get(block & ((1 << 64) - 1))
            return [] if known is None else [known[:-_GROUP_BYTES] + group for group in self._groups]
        try:
            whole = bytes.fromhex(block.removeprefix("0x"))
        except ValueError:
            return []
        groups = list(self._groups)[:_MAX_GROUPS] or [bytes(_GROUP_BYTES)]
        return [whole + group for group in groups]


def _short(block_hash: bytes) -> int:
    """The last 64 bits of a hash, by which vLLM's events name a block."""
    return int.from_bytes(block_hash[-_SHORT_BYTES:], "big")
