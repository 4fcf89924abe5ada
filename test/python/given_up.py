"""A program that gives its calls up: `python3 given_up.py OPTIONS_AS_JSON`.

Each call is made by a thread of its own, all at once. Their results are one line of JSON on standard output; the connection stays until standard
input ends.
"""

from __future__ import annotations

import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import support  # noqa: F401  (finds the package)

from meshcache import Client


def main() -> None:
    options = json.loads(sys.argv[1])
    logging.getLogger("meshcache").setLevel(logging.CRITICAL)
    with Client(options["socket"], timeout=options["timeoutMs"] / 1000) as client:
        value = options["value"].encode()
        calls = [lambda key=key: client.set(key, value) for key in options["set"]]
        calls += [lambda key=key: client.delete([key])[0] for key in options["deleted"]]
        calls.append(client.clear)
        assert client.ping(timeout=60)
        print("ready", flush=True)
        sys.stdin.readline()
        with ThreadPoolExecutor(len(calls)) as threads:
            results = list(threads.map(lambda call: call(), calls))
        print(json.dumps(results), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
