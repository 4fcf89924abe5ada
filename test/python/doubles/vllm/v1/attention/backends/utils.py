"""A double of the framework's module: the layout that all layers of a process have, in versions before 0.27."""


def get_kv_cache_layout() -> str:
    return "HND"
