"""Reads pages of all processes of the cluster while other tasks go on."""

import asyncio

from meshcache.asyncio import Client


async def main() -> None:
    async with Client(required=True) as client:
        print("set:", await client.set_many({"page-0": b"K" * 8, "page-1": b"V" * 8}))
        print("get:", await asyncio.gather(client.get("page-0"), client.get("page-2")))


asyncio.run(main())
