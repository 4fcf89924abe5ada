"""The client for asyncio: its calls are those of the blocking client, and a cancelled call harms nobody."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
import unittest
from collections.abc import Awaitable, Callable
from typing import Any

import sglang_node
from support import PATIENCE_SECONDS, NodeTest, shared_memory
from test_client import WAYS
from test_page_events import HAS_EVENTS

import meshcache
from meshcache import ClosedError, NotAvailable
from meshcache.asyncio import MAX_CALLS, Client

PAGE = 4096


async def until(what: str, condition: Callable[[], bool]) -> None:
    """Waits without blocking the event loop."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited in vain: {what}")
        await asyncio.sleep(0.002)


async def begun(call: Awaitable[Any]) -> asyncio.Future[Any]:
    """A task whose call a thread has, or will have in a moment."""
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    return task


class AsyncNodeTest(NodeTest, unittest.IsolatedAsyncioTestCase):
    async def attached(self, **settings: Any) -> Client:
        patience = {"timeout": PATIENCE_SECONDS, "connect_timeout": PATIENCE_SECONDS, "fence_timeout": PATIENCE_SECONDS}
        client = await Client(self.path, **{**patience, "logger": self.log, **settings})
        self.addAsyncCleanup(client.close)
        return client

    async def cancelled(self, task: asyncio.Future[Any]) -> None:
        """Cancels a call, and waits for its end. A busy machine must not look like a call that never ends."""
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=PATIENCE_SECONDS / 2)
        self.assertTrue(done, "a cancelled call does not end before its deadline")
        self.assertTrue(task.cancelled())


class Names(unittest.TestCase):
    def test_it_has_what_the_blocking_client_has(self) -> None:
        public = [name for name in vars(meshcache.Client) if not name.startswith("_")]
        self.assertEqual([name for name in public if not hasattr(Client, name)], [])
        for name in public:
            own, blocking = getattr(Client, name), getattr(meshcache.Client, name)
            if isinstance(own, property) or name in ("page_events", "is_responsive"):
                continue
            self.assertTrue(inspect.iscoroutinefunction(own), name)
            self.assertEqual(inspect.signature(own), inspect.signature(blocking), name)
            self.assertTrue(own.__doc__, name)
        self.assertEqual(inspect.signature(Client), inspect.signature(meshcache.Client))


class Calls(AsyncNodeTest):
    async def test_pages_move_in_every_mode(self) -> None:
        for options, settings, mode in WAYS:
            with self.subTest(options=options, settings=settings):
                node = self.node(**options)
                async with Client(self.path, logger=self.log, timeout=PATIENCE_SECONDS, **settings) as client:
                    memory = shared_memory(4 * PAGE)
                    region = await client.register(memory)
                    self.assertEqual((region.mode, client.mode), (mode, mode))
                    memory[: 2 * PAGE] = random.randbytes(2 * PAGE)
                    keys, slots = ["a", "b"], [(region, slot * PAGE, PAGE) for slot in range(4)]
                    self.assertEqual(await client.set_from(keys, slots[:2]), [True, True])
                    self.assertEqual(await client.get_into(keys, slots[2:]), [True, True])
                    self.assertEqual(memory[2 * PAGE :], memory[: 2 * PAGE])
                    self.assertEqual((await client.exists(["a", "b", "c"]), await client.exists("b")), (2, True))
                    self.assertIs(await client.delete("a"), True)
                    self.assertEqual(await client.get_into(keys, slots[:2]), [False, True])
                    await client.unregister(region)
                    self.assertEqual((await client.stats())["regions"], [])
                node.kill()

    async def test_calls_are_under_way_at_once(self) -> None:
        self.node()
        client = await self.attached()
        self.assertTrue(await client.set("a", b"1"))
        held = [await begun(client.exists_many(["hold"])) for _ in range(MAX_CALLS - 1)]
        self.assertEqual([await client.get("a") for _ in range(3)], [b"1"] * 3)
        self.assertFalse(any(task.done() for task in held))
        # One more is under way; a further call waits for its turn, and is cancelled without having begun.
        held.append(await begun(client.exists_many(["hold"])))
        waiting = await begun(client.set("b", b"2"))
        await self.cancelled(waiting)
        for task in held:
            await self.cancelled(task)
        self.assertEqual(await client.get_many(["a", "b"]), [b"1", None])
        self.assertEqual((await client.stats())["connections_lost"], 0)

    async def test_a_required_node_that_is_absent_and_a_client_that_is_closed(self) -> None:
        with self.assertRaises(NotAvailable):
            await Client(self.path, required=True, logger=self.log)
        client = Client(self.path, logger=self.log)
        self.assertEqual((client.is_connected, client.mode, client.node_id), (False, "none", None))
        self.assertIs(await client.get("a"), None)
        self.node()
        self.assertTrue(await self.reattached(client))
        self.assertTrue(await client.is_responsive())
        await client.close()
        with self.assertRaises(ClosedError):
            await client.get("a")
        with self.assertRaises(TypeError):
            Client(sock="x")  # type: ignore[call-arg]

    async def test_it_attaches_again(self) -> None:
        node = self.node()
        client = await self.attached()
        node.kill()
        await until("the connection is lost", lambda: not client.is_connected)
        self.assertIs(await client.get("a"), None)
        self.node()
        self.assertTrue(await self.reattached(client))

    async def reattached(self, client: Client) -> bool:
        await until("a new connection", lambda: client.is_connected)
        return await client.set("a", b"1") and await client.get("a") == b"1"

    async def test_a_stream_loses_no_event_when_a_task_is_cancelled(self) -> None:
        self.node(**HAS_EVENTS)
        client = await self.attached()
        self.assertTrue(await client.set("a", b"1"))
        stream = client.page_events()
        kinds: list[str] = []
        while kinds[-1:] != ["complete"]:
            await self.cancelled(await begun(anext(stream)))
            kinds.append((await anext(stream)).kind)
        self.assertEqual(kinds, ["reset", "listed", "complete"])
        waiting = await begun(anext(stream))
        await stream.close()
        with self.assertRaises(StopAsyncIteration):
            await waiting
        self.assertEqual([event async for event in stream], [])
        async for event in client.page_events():
            self.assertEqual(event.kind, "reset")
            break


class Cancellation(AsyncNodeTest):
    async def test_nothing_is_written_once_a_cancelled_read_has_ended(self) -> None:
        self.node(capabilities=3)
        client = await self.attached(mode="direct")
        self.assertTrue(await client.set("a", b"1"))
        memory = shared_memory(PAGE)
        region = await client.register(memory)
        other = await begun(client.exists_many(["hold"]))
        mark = b"\xee" * PAGE
        for _ in range(3):
            memory[:] = bytes(PAGE)
            # The fake node writes for so long, whatever is cancelled.
            read = await begun(client.get_into(["late-write=300"], [(region, 0, PAGE)]))
            await until("the node writes", lambda: memory[0] != 0)
            # Whoever cancels twice does not get the memory earlier.
            read.cancel()
            await asyncio.sleep(0.01)
            await self.cancelled(read)
            memory[:] = mark
            await asyncio.sleep(0.4)
            self.assertEqual(memory[:], mark)
        self.assertFalse(other.done())
        self.assertEqual(await client.get("a"), b"1")
        self.assertEqual((await client.stats())["connections_lost"], 0)
        await self.cancelled(other)

    async def test_cancelled_calls_end_early_in_every_mode(self) -> None:
        for options, mode in (
            ({"capabilities": 3}, "direct"),
            ({"capabilities": 2}, "staged"),
            ({"capabilities": 0}, "bytes"),
        ):
            with self.subTest(mode=mode):
                node = self.node(**options)
                async with Client(self.path, logger=self.log, timeout=PATIENCE_SECONDS) as client:
                    memory = shared_memory(PAGE)
                    region = await client.register(memory)
                    self.assertEqual(region.mode, mode)
                    pages = [(region, 0, PAGE)]
                    for call in (client.get_into, client.set_from):
                        await self.cancelled(await begun(call(["hold"], pages)))
                        tasks = [await begun(call(["hold"], pages)) for _ in range(5)]
                        await until("requests are under way", lambda: len(self.pending(client)) >= 5)
                        for task in tasks:
                            await self.cancelled(task)
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(client.get("hold"), 0.01)
                    self.assertTrue(await client.set("a", b"1"))
                    stats = await client.stats()
                    self.assertEqual((stats["connections_lost"], stats["nodes_ended"]), (0, 0))
                node.kill()

    def pending(self, client: Client) -> dict[int, Any]:
        attachment = client._client._link.attachment
        assert attachment is not None
        return attachment.connection._pending

    async def test_calls_that_are_cancelled_at_any_moment(self) -> None:
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        random_ = random.Random(seed)
        self.node(capabilities=3, max_in_flight=2)
        client = await self.attached(mode="staged", staging_bytes=8 * PAGE)
        data = random_.randbytes(4 * PAGE)
        self.assertTrue(await client.set("a", data))
        for _ in range(60):
            tasks = [await begun(client.get("a")) for _ in range(4)]
            kept = await begun(client.get("a"))
            await asyncio.sleep(random_.uniform(0, 0.002))
            for task in tasks:
                task.cancel()
            self.assertEqual(await kept, data, f"seed {seed}")
        self.assertEqual((await client.stats())["connections_lost"], 0, f"seed {seed}")

    async def test_a_region_whose_registration_was_cancelled_is_released(self) -> None:
        self.node(capabilities=3)
        client = await self.attached()
        for _ in range(20):
            await self.cancelled(await begun(client.register(shared_memory(PAGE))))
        self.assertEqual((await client.stats())["regions"], [])

    async def test_a_prefetch_for_later_is_cancelled_and_ends_with_its_client(self) -> None:
        self.node(capabilities=0xFFFF)
        client = await self.attached()
        await self.cancelled(await begun(client.prefetch(["a"], by=1000)))
        waiting = await begun(client.prefetch(["a"], by=1000))
        await client.close()
        self.assertEqual(await waiting, [False])


@unittest.skipIf(sglang_node.missing() is not None, f"skipped: {sglang_node.missing()}")
class RealNode(unittest.IsolatedAsyncioTestCase):
    async def test_calls_at_once_some_of_them_cancelled(self) -> None:
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        random_ = random.Random(seed)
        node = await asyncio.to_thread(sglang_node.Node)
        self.addCleanup(node.remove)
        for mode in ("auto", "staged", "bytes"):
            async with Client(node.client_socket, mode=mode, required=True, timeout=PATIENCE_SECONDS) as client:  # type: ignore[arg-type]
                memory = shared_memory(16 * PAGE)
                region = await client.register(memory)
                pages = {f"{mode}-{number}": random_.randbytes(PAGE) for number in range(16)}
                self.assertEqual(await client.set_many(pages), [True] * 16)
                for _ in range(10):
                    memory[:] = bytes(16 * PAGE)
                    reads = [
                        await begun(client.get_into([key], [(region, slot * PAGE, PAGE)]))
                        for slot, key in enumerate(pages)
                    ]
                    await asyncio.sleep(random_.uniform(0, 0.003))
                    marked = random_.sample(range(16), 8)
                    for slot in marked:
                        reads[slot].cancel()
                    results = await asyncio.gather(*reads, return_exceptions=True)
                    marks = {slot: bytes((0xEE,)) * PAGE for slot in marked}
                    for slot, mark in marks.items():
                        memory[slot * PAGE : (slot + 1) * PAGE] = mark
                    self.assertEqual(await client.get_many(list(pages)), list(pages.values()))
                    for slot, page in enumerate(pages.values()):
                        if slot not in marks:
                            self.assertEqual(results[slot], [True], f"seed {seed}")
                        self.assertEqual(memory[slot * PAGE : (slot + 1) * PAGE], marks.get(slot, page), f"seed {seed}")
                self.assertEqual((await client.stats())["connections_lost"], 0)


if __name__ == "__main__":
    unittest.main()
