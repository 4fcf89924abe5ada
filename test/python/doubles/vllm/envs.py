"""A double of the framework's module: settings from the environment."""

VLLM_PP_LAYER_PARTITION = None
