"""Learns what LMCache's server tells no adapter: the pages that its engines register, and that its memory was cleared.

LMCache passes keys and bytes to a native plug-in, but no events. Two of its methods are therefore wrapped, once per
process, to notify the ``LMCacheServer`` of this process after they have run. Their signatures are checked first; if
they differ in a release, nothing is wrapped.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from typing import Any, Final

from .._engines.modules import imported
from .server import LMCacheServer

_CONTEXT: Final = "lmcache.v1.multiprocess.engine_context"
_STORAGE: Final = "lmcache.v1.distributed.storage_manager"
#: The method by which engines register, in LMCache's own terms.
REGISTRY: Final = f"{_CONTEXT}.LayoutDescRegistry.register"
CLEAR: Final = f"{_STORAGE}.StorageManager.clear"
#: Attribute of a wrapped method with the server that it notifies.
_TOLD: Final = "__meshcache_server__"


class HookError(Exception):
    """This release of LMCache does not let the plug-in learn of its engines. The text says why."""


def is_installed() -> bool:
    """Whether a real LMCache with a server is installed. Stand-ins of tests and examples have no server."""
    try:
        return importlib.util.find_spec("lmcache.v1.multiprocess") is not None
    except (ImportError, ValueError):
        return False


def server_of_this_process() -> LMCacheServer:
    """The state of this process's server, which is notified from the first call on. Raises ``HookError``."""
    try:
        registry = getattr(imported(_CONTEXT), "LayoutDescRegistry", None)
        storage = getattr(imported(_STORAGE), "StorageManager", None)
    except Exception as error:
        # Whatever a module of LMCache raises on import, the plug-in does without it, and the caller reports that.
        raise HookError(f"{_CONTEXT} cannot be loaded ({type(error).__name__}: {error})") from error
    register, clear = getattr(registry, "register", None), getattr(storage, "clear", None)
    known = getattr(register, _TOLD, None)
    if isinstance(known, LMCacheServer):
        return known
    _check(register, ("model_name", "world_size", "layout_desc"), REGISTRY)
    _check(clear, (), CLEAR)
    server = LMCacheServer()
    setattr(registry, "register", _after_register(register, server))
    setattr(storage, "clear", _after_clear(clear, server))
    return server


def _check(method: Any, names: tuple[str, ...], where: str) -> None:
    if not inspect.isfunction(method):
        raise HookError(f"there is no method {where}")
    parameters = list(inspect.signature(method).parameters)
    if parameters[: 1 + len(names)] != ["self", *names]:
        raise HookError(f"{where} takes {', '.join(parameters)}")


def _after_register(method: Any, server: LMCacheServer) -> Any:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def register(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        groups = given.get("group_layout_descs")
        windows = getattr(given.get("attn_desc"), "num_chunks_in_sw", None)
        if groups is None and windows is not None:
            # All groups have the same form, as in LMCache itself.
            groups = {group: given["layout_desc"] for group in range(len(windows))}
        server.register(str(given["model_name"]), int(given["world_size"]), given["layout_desc"], groups)
        return result

    setattr(register, _TOLD, server)
    return register


def _after_clear(method: Any, server: LMCacheServer) -> Any:
    @functools.wraps(method)
    def clear(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        finally:
            server.cleared()

    setattr(clear, _TOLD, server)
    return clear
