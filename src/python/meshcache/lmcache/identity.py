"""Decides which LMCache servers may share pages, from facts that operators state and that engines have registered.

| fact | source | if it is unknown |
|-|-|-|
| `engine`: the engine, and its options that change results | the operator alone | the server shares nothing |
| `page`: element type and shape of pages, per model | LMCache's `LayoutDescRegistry.register`, since 0.4.7 | the same |
| `kv_cache_dtype`, if elements have one byte | the operator alone | pages of that model are not shared |
| `serde`, if pages are not as long as registered | the operator alone | pages are not stored |
| weights | `fingerprint`, the model's folder or downloaded snapshot, or its name | not shared if the path is hidden |
| model, ranks, object group, tokens, salt | LMCache's keys | |

Any other fact that the operator states counts as well: servers with different facts share nothing.
"""

from __future__ import annotations

from typing import Any, Final

from .._engines.identity import Facts, Unreadable
from . import hooks
from .server import LMCacheServer
from .settings import Settings

_FRAMEWORK: Final = "lmcache"
ENGINE, PAGE, KV_CACHE_DTYPE, SERDE = "engine", "page", "kv_cache_dtype", "serde"
WHERE_SET: Final = "adapter_params"


def facts_of(settings: Settings) -> tuple[Facts, LMCacheServer | None]:
    """The facts that all models of this server have in common, and the source of each model's page forms, if any."""
    facts = Facts(_FRAMEWORK, settings.facts)
    server: LMCacheServer | None = None
    page: Any = "none"
    problem = ""
    # Without LMCache, a stand-in calls the plug-in, and there are no engines whose pages could differ.
    if hooks.is_installed():
        try:
            server, page = hooks.server_of_this_process(), "in_keys"
        except hooks.HookError as error:
            page, problem = None, str(error)

    def page_of() -> Any:
        if problem:
            raise Unreadable(problem)
        return page

    facts.read(ENGINE, _unreadable("LMCache's server is not told"), where="how its engines were started")
    facts.read(PAGE, page_of, where=hooks.REGISTRY)
    for name in sorted(set(settings.facts) - {ENGINE, PAGE}):
        facts.read(name, _unreadable("only the operator knows it"), where="adapter_params")
    return facts, server


def _unreadable(why: str) -> Any:
    def reader() -> Any:
        raise Unreadable(why)

    return reader
