"""meshcache as a storage backend of SGLang's hierarchical cache (HiCache).

SGLang loads it by name: backend ``dynamic``, ``module_path`` "meshcache.sglang", ``class_name`` "MeshCacheStorage".
``examples/sglang/README.md`` shows a whole command line.
"""

from __future__ import annotations

from .changes import live
from .settings import Settings
from .storage import MeshCacheStorage

__all__ = ["MeshCacheStorage", "Settings", "set_fingerprint"]


def set_fingerprint(fingerprint: str | None) -> None:
    """Tells all engines of this process which weights they compute with from now on; flush their caches first. None: the model's name alone identifies the weights."""
    for changes in live():
        changes.tell(fingerprint)
