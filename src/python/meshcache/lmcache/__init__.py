"""meshcache as a native plug-in for LMCache's server mode: stores pages of its L1 memory in the cluster and loads them.

LMCache loads it by name, as an L2 adapter of the type ``native_plugin`` with ``module_path`` "meshcache.lmcache" and
``class_name`` "MeshCacheConnector". ``examples/lmcache/README.md`` shows a complete command line.
"""

from .connector import MeshCacheConnector, set_fingerprint
from .settings import Settings

__all__ = ["MeshCacheConnector", "Settings", "set_fingerprint"]
