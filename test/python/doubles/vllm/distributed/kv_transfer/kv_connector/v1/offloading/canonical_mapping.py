"""A double of the framework's module: the name of the order of bytes that does not depend on the number of workers."""


def canonical_format_id(kv_cache_layout: str) -> str:
    return f"v1-{ {'LBNHC': 'nhd', 'LBHNC': 'hnd'}[kv_cache_layout]}"
