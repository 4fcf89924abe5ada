"""meshcache as a storage backend of SGLang's hierarchical cache (HiCache).

SGLang loads it by name: backend ``dynamic``, ``module_path`` "meshcache.sglang", ``class_name`` "MeshCacheStorage".
``examples/sglang/README.md`` shows a complete command line.
"""

from __future__ import annotations

from .changes import live
from .settings import Settings
from .storage import MeshCacheStorage

__all__ = ["MeshCacheStorage", "Settings", "set_fingerprint"]


def set_fingerprint(fingerprint: str | None) -> None:
    """Tells all engines of this process the weights that they compute with from now on; None: the model's name alone
    identifies them. Flush their caches first."""
    for changes in live():
        changes.tell(fingerprint)
