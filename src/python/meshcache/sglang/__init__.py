"""meshcache as a storage backend of SGLang's hierarchical cache (HiCache).

SGLang loads it by name: backend ``dynamic``, ``module_path`` "meshcache.sglang", ``class_name`` "MeshCacheStorage".
``examples/sglang/README.md`` shows a whole command line.
"""

from .settings import Settings
from .storage import MeshCacheStorage

__all__ = ["MeshCacheStorage", "Settings"]
