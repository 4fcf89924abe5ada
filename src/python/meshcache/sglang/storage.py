"""The storage backend that SGLang's dynamic backend factory loads."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from meshcache import Client
from meshcache._engines.complaints import Complaints
from meshcache._engines.identity import Facts, Unreadable
from meshcache._engines.silence import Silence
from meshcache._engines.weights import Weights, nobodys_fingerprint

from . import framework, hits, hooks
from .changes import WeightChanges, of_engine, remember
from .framework import HiCacheStorage, pool_transfer_result
from .geometry import real_pool
from .guard import LOOKUP_SECONDS, Deadline, guarded, length, logger, misses, none_found
from .hints import RequestHints
from .identity import (
    EXTRA_CONFIG,
    engine_facts,
    head_parts,
    initial_fingerprint,
    namespace,
    refuse,
    side_pool_digest,
)
from .memory import Memory, Piece, attribute, is_tensor
from .pool import KV, HostPool, PoolError, pool_name, usable_key
from .settings import Settings
from .stats import TransferStats
from .tensors import TensorPages


#: Most pages of one request, so that a large batch is stored in part if its time runs out.
_SLICE_PAGES: Final = 1_024
_SLICE_BYTES: Final = 128 << 20


def _unreadable(problem: str) -> Callable[[], str]:
    def read() -> str:
        raise Unreadable(problem)

    return read


class MeshCacheStorage(HiCacheStorage):  # type: ignore[misc]
    """HiCache pages in meshcache, moved directly between the engine's host pools and the node.

    The constructor and ``register_mem_pool_host`` raise ``ValueError`` for configurations that cannot work, which
    aborts the server's start. Every other method returns within its deadline and never raises; failures are misses. All
    methods may be called from several threads at once.
    """

    def __init__(self, storage_config: Any, kwargs: Mapping[str, Any] | None = None) -> None:
        self.complaints = Complaints(logger)
        self._settings = Settings.parse(getattr(storage_config, "extra_config", None))
        self._config = storage_config
        self._tp_rank = int(getattr(storage_config, "tp_rank", 0) or 0)
        self._tp_size = int(getattr(storage_config, "tp_size", 1) or 1)
        if not getattr(storage_config, "model_name", None) and self._settings.tag is None:
            raise ValueError(
                "the server has no model name, so that its pages could be taken for those of another model: "
                'start it with --served-model-name or set "tag" in the extra config'
            )
        if not self._settings.interface_v1:
            logger.warning('SGLang copies each page twice: set "interface_v1": 1 in the extra config')
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._memory: Memory | None = None
        # The mapping is replaced as a whole, so that readers need no lock.
        self._pools: dict[str, HostPool] = {}
        self._pools_before_anchor: dict[str, Any] = {}
        self._stats = TransferStats(bool(getattr(storage_config, "enable_storage_metrics", False)))
        self._silence = Silence()
        self._changes = self._followed_weights()
        self._reset_problem = hooks.install() if framework.IS_INSTALLED else None
        self._hints = RequestHints(self._hinted_pools, self.complaints)
        if framework.IS_INSTALLED:
            hooks.follow_hints()
        # The epoch of the weights in which this engine last stored a page.
        self._stored_epoch = -1

    # Weights

    def set_fingerprint(self, fingerprint: str | None) -> None:
        """Tells which weights the engine computes with from now on. Flush its own cache first, so that all pages in it
        are of these weights. While the weights are changing, this takes effect when the engine has dropped its cache.
        """
        self._changes.tell(fingerprint)

    def _followed_weights(self) -> WeightChanges:
        """The weights of the engine. A running engine may have changed them since its start."""
        storage, stated = weakref.ref(self), self._settings.fingerprint

        def use(fingerprint: str | None) -> None:
            owner = storage()
            if owner is not None:
                owner._use(fingerprint)

        controller, is_later = hooks.attaching_controller() if framework.IS_INSTALLED else (None, False)
        changes = of_engine(controller) if is_later else None
        if changes is not None:
            changes.pass_on(self, use, stated, are_fixed=self._settings.on_reset == "same_weights")
            return changes
        weights = self._weights(is_later and hooks.weights_can_change())
        changes = WeightChanges(weights, framework.weight_version, use, logger, self, stated)
        if controller is not None:
            remember(controller, changes)
        return changes

    def _weights(self, may_have_changed: bool) -> Weights:
        are_fixed = self._settings.on_reset == "same_weights"
        try:
            if may_have_changed and self._settings.fingerprint is None:
                raise Unreadable("the storage was attached to a running engine, whose weights may have been changed")
            return Weights(initial_fingerprint(self._settings), are_fixed=are_fixed)
        except (OSError, Unreadable) as error:
            logger.warning(
                "this engine shares pages with no other engine: its weights are unknown (%s); "
                'state "fingerprint" in the extra config, or name the version of the weights now: call /update_weight_version or '
                "meshcache.sglang.set_fingerprint; it must be equal on all engines with the same weights",
                error,
            )
            return Weights(nobodys_fingerprint(), are_fixed=are_fixed)

    def _use(self, fingerprint: str | None) -> None:
        client = self._client
        if client is None:
            return
        try:
            client.set_fingerprint(fingerprint)
        except Exception as error:
            # No page may be read or stored under the former weights.
            self._client = None
            logger.warning("switching to the pages of other weights has failed, everything is a miss: %s", error)
            client.close()

    def _ready(self) -> Client | None:
        """The client, if pages may be read and stored now, and the node is not silent."""
        return self._client if self._changes.is_open and not self._silence.is_on else None

    def _hinted_pools(self) -> tuple[Client | None, list[HostPool]]:
        """The client, if pages may be brought now, and the pools whose pages hints are about."""
        return self._ready(), [pool for pool in self._pools.values() if not pool.holds_nothing]

    def _note_end(self, client: Client, deadline: Deadline, what: str) -> None:
        """Called at the end of a call. If it timed out, the node is pinged in the background until it answers."""
        if deadline.left() > 0:
            return
        self.complaints.log(
            f"timeout {what}",
            f"{what}: the node has not answered in time: until it answers, all pages are misses, and none is stored",
        )
        self._silence.begin(client)

    # Registration

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Registers the main pool and attaches to the node. Raises ``ValueError`` if its pages cannot be moved."""
        mem_pool_host = real_pool(mem_pool_host)
        parts = head_parts(self._config, mem_pool_host)
        refuse(mem_pool_host, parts, self._settings)
        facts = self._facts(mem_pool_host, parts)
        with self._lock:
            kv = self._pools.get(KV)
            if kv is not None and kv.pool is mem_pool_host:
                return
            waiting = {
                **self._pools_before_anchor,
                **{name: side.pool for name, side in self._pools.items() if name != KV},
            }
            self._detach()
            self.mem_pool_host = mem_pool_host
            identity = namespace(self._config, mem_pool_host, parts, facts, self._settings.tag)
            client = Client(
                self._settings.client_socket,
                token_file=self._settings.token_file,
                namespace=replace(identity, fingerprint=self._changes.weights.fingerprint),
                name=f"sglang-tp{self._tp_rank}of{self._tp_size}",
                mode=self._settings.mode,
                timeout=self._settings.timeout,
                required=self._settings.required,
                end_frozen_node=self._settings.end_frozen_node,
                logger=logger,
                on_fingerprint=self.set_fingerprint,
            )
            try:
                memory = Memory(client)
                kv = HostPool(mem_pool_host, KV, memory, key_pool=KV, parts=parts)
                if memory.regions == 0 and not kv.holds_nothing:
                    raise ValueError(
                        f"no host memory was found in the pool {type(mem_pool_host).__name__}; update meshcache"
                    )
            except BaseException:
                client.close()
                raise
            self._client, self._memory, self._pools = client, memory, {KV: kv}
            self._pools_before_anchor = {}
        # The weights may have changed since the client was made.
        self._use(self._changes.weights.fingerprint)
        logger.info(
            "pool registered pool=%s page_size=%d regions=%d namespace: %s",
            KV,
            kv.page_size,
            memory.regions,
            replace(identity, fingerprint=self._changes.weights.fingerprint),
        )
        for name, pool in waiting.items():
            self.register_mem_host_pool_v2(pool, name)

    def _facts(self, pool: Any, parts: Sequence[str]) -> Facts:
        facts = engine_facts(self._config, pool, parts, self._settings)
        if self._reset_problem is not None:
            where = "resets of the engine's cache and changes of its weights"
            facts.read("resets", _unreadable(self._reset_problem), where=where)
        facts.warn(logger, EXTRA_CONFIG)
        return facts

    @guarded(lambda *_, **__: None)
    def on_host_pools_registered(self) -> None:
        """Called when all pools have been registered. There is nothing to do."""

    @guarded(lambda *_, **__: None)
    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """Registers a side pool: states, windows, indexes or drafts. If it cannot be used, its pages are misses."""
        name, host_pool = pool_name(host_pool_name), real_pool(host_pool)
        with self._lock:
            if self._memory is None:
                self._pools_before_anchor[name] = host_pool
                return
            registered = self._pools.get(name)
            if name == KV or (registered is not None and registered.pool is host_pool):
                return
            key_pool = f"{name}.{side_pool_digest(host_pool, name, self._config, self._settings)}"
            pool = HostPool(host_pool, name, self._memory, key_pool=key_pool)
            self._pools = {**self._pools, name: pool}
        logger.info("pool registered pool=%s page_size=%d", key_pool, pool.page_size)

    # Existence

    @guarded(lambda *_, **__: 0)
    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """Number of leading pages that exist."""
        client, pool = self._ready(), self._pools.get(KV)
        known = self._leading_keys(keys)
        self._hints.note(known)
        if not known:
            return 0
        if client is None or pool is None or pool.is_logical:
            return self._counted(known, 0)
        deadline = self._lookup_deadline()
        found = client.exists_prefix(known, suffixes=pool.parts, pool=pool.key_pool, timeout=deadline.left())
        self._note_end(client, deadline, "lookup")
        return max(0, min(int(found), len(known)))

    def _lookup_deadline(self) -> Deadline:
        return Deadline(min(self._settings.timeout, LOOKUP_SECONDS))

    @guarded(lambda *_, **__: False)
    def exists(self, key: str) -> bool:
        """Whether this page exists."""
        return bool(self.batch_exists([key]) == 1)

    def batch_exists_v2(self, keys: list[str], pool_transfers: Any = None, extra_info: Any = None) -> Any:
        """All prefixes that all pools can restore together."""
        kv_pages, found, restorable = self._restorable(keys, pool_transfers)
        return pool_transfer_result(kv_pages, found, restorable)

    @guarded(lambda *_, **__: (0, {}, []))
    def _restorable(self, keys: list[str], pool_transfers: Any) -> tuple[int, dict[Any, int], list[int]]:
        deadline = self._lookup_deadline()
        client, kv = self._ready(), self._pools.get(KV)
        known = self._leading_keys(keys)
        self._hints.note(known)
        if client is None or kv is None:
            return self._counted(known, 0), {}, []
        # A logical anchor has no bytes, so only the other pools limit what can be restored.
        pages = len(known) if kv.is_logical else hits.leading(self._flags(client, kv, known, deadline))
        sides = [transfer for transfer in pool_transfers or [] if pool_name(transfer.name) != KV]
        restorable = list(range(1, pages + 1)) if sides or not kv.is_logical else []
        found: dict[Any, int] = {KV: pages} if restorable else {}
        for transfer in sides:
            if not restorable:
                break
            if not hits.gates(transfer.hit_policy):
                found[transfer.name] = self._grouped(client, transfer, restorable[-1], deadline)
                continue
            pool = self._pools.get(pool_name(transfer.name))
            # Pages beyond the longest prefix that is still possible need not be looked up.
            flags = [] if pool is None else self._flags(client, pool, known[: restorable[-1]], deadline)
            trailing = hits.window(transfer.keys) if hits.is_trailing(transfer.hit_policy) else 0
            possible = hits.prefixes(flags, trailing)
            if possible:
                found[transfer.name] = possible[-1]
            restorable = hits.common(restorable, possible)
        self._note_end(client, deadline, "lookup")
        return self._counted(known, restorable[-1] if restorable else 0), found, restorable

    def _counted(self, keys: Sequence[str], found: int) -> int:
        """Counts a lookup whose result is not that of a single request to the node. Returns ``found``."""
        client = self._client
        if client is not None:
            client.count_lookup(len(keys), found)
        return found

    def _grouped(self, client: Client, transfer: Any, pages: int, deadline: Deadline) -> int:
        """Number of pages of a prefix that also exist as groups of blocks. They do not affect the prefix."""
        pool = self._pools.get(pool_name(transfer.name))
        keys = [] if pool is None else self._leading_keys(transfer.keys or [])
        flags = [] if pool is None else self._flags(client, pool, keys, deadline)
        group, block = (int(getattr(transfer, name, 0) or 0) for name in ("group_pages", "block_pages"))
        return hits.grouped(flags, group, block, pages)

    def _flags(self, client: Client, pool: HostPool, keys: Sequence[str], deadline: Deadline) -> list[bool]:
        left = deadline.left()
        if not keys or left == 0:
            return [False] * len(keys)
        flags = client.exists_many(keys, suffixes=pool.parts, pool=pool.key_pool, counted=False, timeout=left)
        return list(flags) if len(flags) == len(keys) else [False] * len(keys)

    @staticmethod
    def _leading_keys(keys: Sequence[Any]) -> list[str]:
        """The keys before the first placeholder."""
        return list(keys[: hits.leading([usable_key(key) for key in keys])])

    # Pages in the host pools

    @guarded(misses)
    def batch_get_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Reads pages of the main pool into its memory. True: it holds exactly the page; else it is undefined."""
        return self._move(KV, keys, host_indices, Deadline(self._settings.timeout), write=False)

    @guarded(misses)
    def batch_set_v1(self, keys: list[str], host_indices: Any, extra_info: Any = None) -> list[bool]:
        """Stores pages of the main pool from its memory."""
        return self._move(KV, keys, host_indices, Deadline(self._settings.timeout), write=True)

    @guarded(lambda *_, **__: {})
    def batch_get_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        """Reads pages of several pools into their memory; one result per key for each pool."""
        return self._move_all(transfers, write=False)

    @guarded(lambda *_, **__: {})
    def batch_set_v2(self, transfers: Any, extra_info: Any = None) -> dict[Any, list[bool]]:
        """Stores pages of several pools from their memory; one result per key for each pool."""
        return self._move_all(transfers, write=True)

    def _move_all(self, transfers: Any, *, write: bool) -> dict[Any, list[bool]]:
        deadline = Deadline(self._settings.timeout)
        results: dict[Any, list[bool]] = {}
        for transfer in transfers or []:
            moved = self._move_transfer(transfer, deadline, write)
            results[transfer.name] = results.get(transfer.name, []) + moved
        return results

    def _move_transfer(self, transfer: Any, deadline: Deadline, write: bool) -> list[bool]:
        name = pool_name(transfer.name)
        if transfer.keys is None:
            # Without keys, nothing can be moved, but an empty list would count as success.
            pool = self._pools.get(name)
            return [False] * max(1, length(transfer.host_indices) // (pool.page_size if pool else 1))
        moved: list[bool] = self._guarded_move(transfer.keys, name, transfer.host_indices, deadline, write)
        return moved

    @guarded(misses)
    def _guarded_move(self, keys: Any, name: str, indices: Any, deadline: Deadline, write: bool) -> list[bool]:
        return self._move(name, keys, indices, deadline, write=write)

    def _move(self, name: str, keys: Sequence[Any], indices: Any, deadline: Deadline, *, write: bool) -> list[bool]:
        client, pool, count = self._ready(), self._pools.get(name), len(keys)
        if self._client is None or pool is None:
            self.complaints.log(f"unregistered {name}", f"pages cannot be moved: the pool {name} is not registered")
            return [False] * count
        if client is None:
            return [False] * count
        if pool.holds_nothing:
            return [True] * count
        if count == 0:
            return []
        try:
            entries = pool.pieces(indices, count)
        except PoolError as error:
            self.complaints.log(f"pieces {name}", f"pages cannot be moved pool={name} pages={count}: {error}")
            return [False] * count
        if all(usable_key(key) for key in keys):
            return self._call(client, pool, keys, entries, deadline, write)
        parts = max(1, len(pool.parts))
        real = [index for index, key in enumerate(keys) if usable_key(key)]
        chosen = [entry for index in real for entry in entries[index * parts : (index + 1) * parts]]
        moved = self._call(client, pool, [keys[index] for index in real], chosen, deadline, write)
        results = [False] * count
        for index, result in zip(real, moved):
            results[index] = result
        return results

    def _call(
        self,
        client: Client,
        pool: HostPool,
        keys: Sequence[str],
        entries: Sequence[Sequence[Piece]],
        deadline: Deadline,
        write: bool,
    ) -> list[bool]:
        parts = max(1, len(pool.parts))
        size = sum(piece[2] for piece in entries[0]) * parts if entries else 0
        step = max(1, min(_SLICE_PAGES, _SLICE_BYTES // max(1, size)))
        started, epoch = time.monotonic(), self._changes.weights.epoch
        results: list[bool] = []
        for at in range(0, len(keys), step):
            left = deadline.left()
            # A call begun with former weights must not be finished with the present ones.
            if left == 0 or epoch != self._changes.weights.epoch:
                break
            names, pieces = pool.keys(keys[at : at + step]), entries[at * parts : (at + step) * parts]
            if write:
                done = client.set_from(names, pieces, named=False, pool=pool.key_pool, timeout=left)
            else:
                done = client.get_into(names, pieces, pool=pool.key_pool, timeout=left)
            results += pool.per_page(done, len(keys[at : at + step]))
        moved = sum(results)
        if write and moved > 0:
            self._stored_epoch = epoch
        if keys:
            self._note_end(client, deadline, "write" if write else "read")
        self._stats.note(written=write, pages=moved, size=moved * size, seconds=time.monotonic() - started)
        return results + [False] * (len(keys) - len(results))

    # Pages in separate tensors

    @guarded(lambda *_, **__: None)
    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """Reads a page into a tensor, which is returned (None on a miss), or to an address (returns true or false).

        Addresses, here and below, must be in the memory of registered pools.
        """
        pages = self._tensor_pages()
        sizes = None if target_sizes is None else [target_sizes]
        targets = None if target_location is None else [target_location]
        found = None if pages is None else pages.read([key], targets, sizes)[0]
        return found if targets is None or is_tensor(target_location) else found is not None

    @guarded(none_found)
    def batch_get(self, keys: list[str], target_locations: Any = None, target_sizes: Any = None) -> list[Any] | int:
        """Reads pages into tensors; None for each miss. With addresses, returns the number of leading pages read."""
        pages = self._tensor_pages()
        found = [None] * len(keys) if pages is None else pages.read(keys, target_locations, target_sizes)
        if target_locations is None or all(is_tensor(location) for location in target_locations):
            return found
        return hits.leading([page is not None for page in found])

    @guarded(lambda *_, **__: False)
    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Stores a page from a tensor, or from an address."""
        pages = self._tensor_pages()
        self._stored_epoch = self._changes.weights.epoch
        values = None if value is None else [value]
        sizes = None if target_sizes is None else [target_sizes]
        return pages is not None and pages.write(
            [key], values, None if target_location is None else [target_location], sizes
        )

    @guarded(lambda *_, **__: False)
    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Stores pages from tensors or addresses. True if all were stored."""
        pages = self._tensor_pages()
        self._stored_epoch = self._changes.weights.epoch
        return pages is not None and pages.write(keys, values, target_locations, target_sizes)

    def _tensor_pages(self) -> TensorPages | None:
        client, memory, pools = self._ready(), self._memory, self._pools
        pool = pools.get(KV)
        if client is None or memory is None or pool is None or pool.parts:
            return None
        sides = [side for name, side in pools.items() if name != KV]
        return TensorPages(client, pool, sides, memory, self._stats, self.complaints, self._settings.timeout)

    # Other calls

    @guarded(lambda *_, **__: False)
    def clear(self) -> bool:
        """Drops the node's pages of this engine, which are those of all engines with its identity and weights.

        SGLang also clears its storage after it has changed the weights. By then, the former pages are out of use, and
        pages of the new weights are of other engines unless this one has stored some, so nothing is dropped.
        """
        client = self._client
        if client is None:
            return False
        epoch = self._changes.weights.epoch
        if not self._changes.is_open or (epoch > 0 and self._stored_epoch != epoch):
            return True
        return bool(client.clear(tuple(pool.key_pool for pool in self._pools.values())))

    @guarded(lambda *_, **__: None)
    def get_stats(self) -> Any:
        """A ``StorageMetrics`` of the pages moved since the last call; None if SGLang collects no metrics."""
        return self._stats.collect()

    @guarded(lambda *_, **__: None)
    def close(self) -> None:
        """Leaves the node. Everything is a miss until a pool is registered again."""
        with self._lock:
            self._detach()

    def _detach(self) -> None:
        client, self._client, self._memory, self._pools = self._client, None, None, {}
        if client is not None:
            client.close()
