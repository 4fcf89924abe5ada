"""Which LMCache servers may share pages: what operators state of their engines, and what engines have registered.

| what | where it is read | when it is not known there |
|-|-|-|
| `engine`: the engine, and its options that change what it computes | nowhere: LMCache's server is not told | the server shares with nobody until it is stated |
| element type and shape of pages, for each model | `LayoutDescRegistry.register` of LMCache, since 0.4.7 | the same, with `page` |
| `kv_cache_dtype`, where elements have one byte | nowhere | pages of that model are not shared until it is stated |
| `serde`, where pages are not as long as registered | nowhere | pages are not stored until it is stated |
| weights | `fingerprint`; the files of the model, where its name is a folder or a downloaded snapshot; else the model's name | pages of a model whose folder is out of sight are not shared |
| model, ranks, object group, tokens, salt | LMCache's keys | |

Any other fact that the operator states counts as well: servers that state different ones share nothing.
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
    """The facts that all models of this server have in common, and what tells the pages of each; None: the facts say it, or nothing does."""
    facts = Facts(_FRAMEWORK, settings.facts)
    server: LMCacheServer | None = None
    page: Any = "none"
    problem = ""
    # Without LMCache there are no engines whose pages could differ: a stand-in calls the plug-in.
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
