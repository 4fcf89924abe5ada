"""The futures of the LMCache plug-in, with a client that does what the test says."""

from __future__ import annotations

import dataclasses
import os
import select
import threading
import unittest
from collections.abc import Sequence
from typing import Any
from unittest import mock

import lmcache_support as support
from lmcache_support import Completed, wait_for

from meshcache.lmcache import MeshCacheConnector
from meshcache.lmcache import connector as connector_module

OPERATIONS = ("get", "set", "exists", "delete")


class GateClient:
    """Calls wait while their gate is closed; then they give what is planned, or true for each key."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.gates = {name: threading.Event() for name in ("get", "set", "exists", "delete")}
        for gate in self.gates.values():
            gate.set()
        self.begun = 0
        self.is_connected = True
        self.planned: Any = None
        self.closed = threading.Event()
        self.answers = threading.Event()
        self.fingerprints: list[str | None] = []

    def set_fingerprint(self, fingerprint: str | None) -> None:
        self.fingerprints.append(fingerprint)

    def ping(self, *, timeout: float) -> bool:
        return self.answers.is_set()

    def _call(self, name: str, keys: Sequence[str]) -> list[bool]:
        self.begun += 1
        self.gates[name].wait(support.PATIENCE_SECONDS)
        if isinstance(self.planned, BaseException):
            raise self.planned
        return [True] * len(keys) if self.planned is None else list(self.planned)

    def register(self, memory: Any, **_: Any) -> object:
        return object()

    def get_into(self, keys: Any, pages: Any, **_: Any) -> list[bool]:
        return self._call("get", keys)

    def set_from(self, keys: Any, pages: Any, **_: Any) -> list[bool]:
        return self._call("set", keys)

    def exists_many(self, keys: Any, **_: Any) -> list[bool]:
        return self._call("exists", keys)

    def delete_many(self, keys: Any, **_: Any) -> list[bool]:
        return self._call("delete", keys)

    def close(self) -> None:
        self.closed.set()


class ConnectorTest(unittest.TestCase):
    def make(self, **params: Any) -> tuple[MeshCacheConnector, Any, Completed]:
        """A connector, its client and its completions."""
        with mock.patch.object(connector_module, "Client", GateClient):
            connector = MeshCacheConnector(**{"timeout": 29.0, "facts": {"engine": "test"}, **params})
        client: Any = connector._client
        client.answers.set()
        self.addCleanup(connector.close)
        self.addCleanup(lambda: [gate.set() for gate in client.gates.values()])
        return connector, client, Completed(connector)

    @staticmethod
    def submit(connector: MeshCacheConnector, operation: str, keys: Any, views: Any = None) -> int:
        if operation in ("get", "set"):
            views = [memoryview(bytearray(8)) for _ in keys] if views is None else views
            return int(getattr(connector, f"submit_batch_{operation}")(keys, views))
        return int(getattr(connector, f"submit_batch_{operation}")(keys))

    def test_each_operation_completes_with_a_result_a_key(self) -> None:
        connector, client, completed = self.make()
        for operation in OPERATIONS:
            future = self.submit(connector, operation, ["a", "b", "c"])
            self.assertEqual(completed.wait(future), (True, "", [True] * 3), operation)
            future = self.submit(connector, operation, [])
            self.assertEqual(completed.wait(future), (True, "", []), operation)
        client.planned = [True, False, True]
        for operation in ("get", "exists", "delete"):
            future = self.submit(connector, operation, ["a", "b", "c"])
            self.assertEqual(completed.wait(future), (True, "", [True, False, True]), operation)
        self.assertEqual(
            completed.wait(self.submit(connector, "set", ["a", "b", "c"])),
            (False, "set: 1 of 3 pages were not stored", [True, False, True]),
        )

    def test_pages_that_are_not_stored_are_told_in_the_log(self) -> None:
        connector, client, completed = self.make()
        client.planned = [True, False]
        with self.assertLogs(connector_module.logger, "WARNING") as logs:
            for _ in range(3):
                self.assertFalse(completed.wait(self.submit(connector, "set", ["a", "b"]))[0])
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn("1 of 2 pages were not stored: the node has no room for pages of up to 8 bytes", logs.output[0])

    def test_operations_that_need_memory_fail_without_it(self) -> None:
        connector, client, completed = self.make()
        for submit in (connector.submit_batch_get, connector.submit_batch_set):
            ok, error, results = completed.wait(submit(["a"], None))  # type: ignore[arg-type]
            self.assertEqual((ok, results), (False, [False]))
            self.assertIn("1 keys need as many memoryviews, got 0", error)
        self.assertEqual(client.begun, 0)

    def test_bad_arguments_complete_as_failed_futures(self) -> None:
        connector, client, completed = self.make()
        released = memoryview(bytearray(8))
        released.release()
        good = memoryview(bytearray(8))
        cases: list[tuple[str, Any, Any, int]] = [
            ("get", ["a", "b"], [good], 2),
            ("set", ["a"], [good, good], 1),
            ("get", ["a"], [memoryview(b"readonly")], 1),
            ("get", ["a", "b"], [good, memoryview(bytearray(8))[::2]], 2),
            ("set", ["a"], [memoryview(bytearray(8))[::-1]], 1),
            ("set", ["a"], [released], 1),
            ("set", ["a"], ["text"], 1),
            ("set", ["a"], [None], 1),
            ("set", ["a", 1], [good, good], 2),
            ("set", [b"a"], [good], 1),
            ("get", None, [good], 0),
            ("get", ["a"], 7, 1),
            ("exists", "abc", None, 3),
            ("exists", 7, None, 0),
            ("delete", [None], None, 1),
        ]
        for operation, keys, views, count in cases:
            ok, error, results = completed.wait(self.submit(connector, operation, keys, views))
            self.assertEqual((ok, results), (False, [False] * count), (operation, keys, error))
            self.assertTrue(error.startswith(f"{operation}: "), error)
        self.assertEqual(client.begun, 0)
        self.assertIn("read-only", completed.wait(self.submit(connector, "get", ["a"], [memoryview(b"x")]))[1])

    def test_what_a_client_raises_fails_the_future_and_no_more(self) -> None:
        connector, client, completed = self.make()
        for planned in (ValueError("wrong"), RuntimeError(), SystemExit()):
            client.planned = planned
            for operation in OPERATIONS:
                ok, error, results = completed.wait(self.submit(connector, operation, ["a", "b"]))
                self.assertEqual((ok, results), (False, [False, False]))
                self.assertEqual(error, f"{operation}: {str(planned) or type(planned).__name__}")
        client.planned = None
        for operation in OPERATIONS:
            self.assertEqual(completed.wait(self.submit(connector, operation, ["a"])), (True, "", [True]))

    def test_results_are_as_many_as_keys_whatever_a_client_gives(self) -> None:
        connector, client, completed = self.make()
        for planned in ([], [True], [True] * 5):
            client.planned = planned
            for operation in OPERATIONS:
                results = completed.wait(self.submit(connector, operation, ["a", "b"]))[2]
                self.assertEqual(len(results), 2, operation)

    def test_stores_do_not_delay_lookups_and_loads(self) -> None:
        connector, client, completed = self.make()
        client.gates["set"].clear()
        stores = [self.submit(connector, "set", ["a"]) for _ in range(20)]
        for operation in ("exists", "get"):
            completed.wait(self.submit(connector, operation, ["a"]))
        self.assertEqual(set(stores) & set(completed.by_id), set())
        client.gates["set"].set()
        for store in stores:
            self.assertEqual(completed.wait(store), (True, "", [True]))

    def test_above_the_bound_operations_fail_at_once(self) -> None:
        connector, client, completed = self.make(max_pending=3, workers=1)
        client.gates["get"].clear()
        first = self.submit(connector, "get", ["a"])
        wait_for("the first is under way", lambda: client.begun == 1)
        waiting = [self.submit(connector, "get", ["a"]) for _ in range(3)]
        refused = [self.submit(connector, operation, ["a", "b"]) for operation in OPERATIONS]
        completed.drain()
        self.assertEqual(set(completed.by_id), set(refused))
        for future in refused:
            ok, error, results = completed.by_id[future]
            self.assertEqual((ok, results), (False, [False, False]))
            self.assertIn("max_pending", error)
        client.gates["get"].set()
        for future in [first, *waiting]:
            self.assertEqual(completed.wait(future), (True, "", [True]))

    def test_what_waits_too_long_fails_by_its_deadline(self) -> None:
        connector, client, completed = self.make(workers=1)
        patient = connector._settings
        for _ in range(2):
            # In the second round, the thread that watches deadlines has slept without one.
            connector._settings = patient
            client.gates["set"].clear()
            begun = client.begun
            first = self.submit(connector, "set", ["a"])
            wait_for("the first is under way", lambda: client.begun > begun)
            connector._settings = dataclasses.replace(patient, timeout=0.02)
            waiting = [self.submit(connector, operation, ["a", "b"]) for operation in ("set", "delete") * 5]
            for future in waiting:
                ok, error, results = completed.wait(future)
                self.assertEqual((ok, results), (False, [False, False]))
                self.assertIn("not begun in time", error)
            # Its memory is in use, so that it has not completed.
            self.assertNotIn(first, completed.by_id)
            client.gates["set"].set()
            self.assertEqual(completed.wait(first), (True, "", [True]))
            self.assertEqual(client.begun, begun + 1)
        self.assertEqual(completed.twice, [])

    def test_memory_is_held_until_completion_and_not_longer(self) -> None:
        connector, client, completed = self.make()
        for planned in (None, ValueError("wrong")):
            client.planned = planned
            client.gates["get"].clear()
            view = memoryview(bytearray(8))
            future = self.submit(connector, "get", ["a"], [view])
            with self.assertRaises(BufferError):
                view.release()
            client.gates["get"].set()
            completed.wait(future)
            view.release()

    def test_the_eventfd_is_readable_while_there_are_completions(self) -> None:
        connector, _, _ = self.make()
        poll = select.poll()
        poll.register(connector.event_fd(), select.POLLIN)
        self.assertEqual((poll.poll(0), connector.drain_completions()), ([], []))
        for count in (1, 5):
            futures = [self.submit(connector, "exists", []) for _ in range(count)]
            self.assertEqual(poll.poll(support.PATIENCE_SECONDS * 1000), [(connector.event_fd(), select.POLLIN)])
            self.assertEqual([completion[0] for completion in connector.drain_completions()], futures)
            self.assertEqual(poll.poll(0), [])
        self.assertFalse(os.get_blocking(connector.event_fd()))
        self.assertFalse(os.get_inheritable(connector.event_fd()))

    def test_thousands_of_many_threads_complete_once_each(self) -> None:
        connector, _, completed = self.make(max_pending=1 << 20)
        futures: list[list[int]] = [[] for _ in range(4)]

        def submit(mine: list[int]) -> None:
            for number in range(1500):
                mine.append(self.submit(connector, OPERATIONS[number % 4], ["a"] * (number % 5)))

        threads = [threading.Thread(target=submit, args=(mine,)) for mine in futures]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        submitted = [future for mine in futures for future in mine]
        self.assertEqual(len(set(submitted)), len(submitted))
        for future in submitted:
            self.assertTrue(completed.wait(future)[0])
        self.assertEqual((completed.twice, len(completed.by_id)), ([], len(submitted)))

    def test_close_while_in_flight(self) -> None:
        connector, client, completed = self.make(workers=1)
        client.gates["get"].clear()
        first = self.submit(connector, "get", ["a"])
        wait_for("the first is under way", lambda: client.begun == 1)
        waiting = [self.submit(connector, "get", ["a", "b"]) for _ in range(5)]
        closers = [threading.Thread(target=connector.close) for _ in range(2)]
        for closer in closers:
            closer.start()
        for future in waiting:
            self.assertEqual(completed.wait(future), (False, "get: the plug-in was closed", [False, False]))
        self.assertTrue(client.closed.wait(support.PATIENCE_SECONDS))
        # Memory of the first is in use: neither closer returns.
        self.assertTrue(all(closer.is_alive() for closer in closers))
        client.gates["get"].set()
        for closer in closers:
            closer.join(support.PATIENCE_SECONDS)
            self.assertFalse(closer.is_alive())
        completed.drain()
        self.assertEqual(completed.by_id[first], (True, "", [True]))
        connector.close()
        for operation in OPERATIONS:
            ok, error, results = completed.wait(self.submit(connector, operation, ["a"]))
            self.assertEqual((ok, results), (False, [False]))
            self.assertIn("closed", error)
        self.assertEqual(completed.twice, [])
        self.assertEqual([thread for thread in connector._threads if thread.is_alive()], [])
        os.fstat(connector.event_fd())


if __name__ == "__main__":
    unittest.main()
