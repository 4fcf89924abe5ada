"""meshcache as a native plug-in of LMCache's server mode: pages of its L1 memory, stored in and loaded from the cluster.

LMCache loads it by name: L2 adapter of the type ``native_plugin``, ``module_path`` "meshcache.lmcache", ``class_name``
"MeshCacheConnector". ``examples/lmcache/README.md`` shows a whole command line.
"""

from .connector import MeshCacheConnector, set_fingerprint
from .settings import Settings

__all__ = ["MeshCacheConnector", "Settings", "set_fingerprint"]
