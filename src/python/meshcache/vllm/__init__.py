"""meshcache as a tier of vLLM's offloading connector, below its pool in host memory.

vLLM loads it by name, in ``secondary_tiers`` of ``TieringOffloadingSpec``: ``type`` "MeshCacheTier", ``module_path``
"meshcache.vllm". ``examples/vllm/README.md`` shows a complete command line.
"""

from .settings import Settings
from .tier import MeshCacheTier, set_fingerprint

__all__ = ["MeshCacheTier", "Settings", "set_fingerprint"]
