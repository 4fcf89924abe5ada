"""The identity of an engine's chunks. Engines that differ in any fact about the bytes share none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshcache import Namespace
from meshcache._engines.identity import Facts, Unreadable
from meshcache._engines.modules import imported

from . import framework
from .model import MODEL_FACTS, NONE, add_model_facts, files_digest, kv_dtype
from .settings import Settings

_WHERE_SET: Final = "the tier's entry in secondary_tiers"
#: The layout in which all layers of a head are contiguous, so that the workers' chunks, joined, are a single worker's.
_HEADS_OUTERMOST: Final = "BHLNC"
#: Hashes for which vLLM keeps its seed secret, because collisions could be constructed.
_WEAK_HASHES: Final = ("xxhash", "xxhash_cbor")


@dataclass(frozen=True)
class Identity:
    """The identity of an engine's chunks, without the fingerprint of the weights."""

    namespace: Namespace
    facts: Facts
    #: Fingerprint of the model's files; None: they are not on this host, or not needed.
    files: str | None
    #: Why the weights are unknown although no fact is missing; None: they are known.
    unknown_weights: str | None = None

    def warn(self) -> None:
        """Logs which facts are unknown."""
        self.facts.warn(framework.logger, _WHERE_SET)


@dataclass(frozen=True)
class _Shape:
    """The layout of chunks, from the specification of any version. Properties raise if the specification lacks them."""

    spec: Any
    config: Any

    @property
    def _has_config(self) -> bool:
        return getattr(self.spec, "config", None) is not None

    @property
    def model(self) -> str:
        own = self.spec.config.model.name if self._has_config else self.spec.vllm_config.model_config.model
        if not isinstance(own, str):
            raise Unreadable(f"it is {own!r}")
        return own

    @property
    def dtype(self) -> str:
        own = self.spec.config.model.dtype if self._has_config else self.spec.vllm_config.cache_config.cache_dtype
        if own is None:
            raise Unreadable("it is not there")
        return kv_dtype(own, self.config)

    @property
    def tokens(self) -> str:
        """Tokens per hash, blocks per chunk, and tokens per block of each group."""
        if self._has_config:
            cache = self.spec.config.cache
            of_hash, of_chunk = cache.tokens_per_hash, cache.blocks_per_chunk
            of_blocks = [group.tokens_per_block for group in self._groups]
        else:
            of_hash, of_chunk = self.spec.hash_block_size, self.spec.block_size_factor
            of_blocks = list(self.spec.gpu_block_size)
        for count in (of_hash, of_chunk, *of_blocks):
            if type(count) is not int:
                raise Unreadable(f"a count is {count!r}")
        return f"{of_hash}-{of_chunk}-{','.join(map(str, of_blocks))}"

    @property
    def layers(self) -> list[Any]:
        """The layers of each group, with the group's number in keys."""
        if self._has_config:
            return [
                [getattr(group, "group_id", index), list(group.layer_names)] for index, group in enumerate(self._groups)
            ]
        return [[index, list(group.layer_names)] for index, group in enumerate(self._groups)]

    @property
    def _groups(self) -> Sequence[Any]:
        groups: Sequence[Any] = (
            self.spec.config.groups if self._has_config else self.spec.kv_cache_config.kv_cache_groups
        )
        if not groups:
            raise Unreadable("there are no groups of layers")
        return groups

    @property
    def page_format(self) -> str:
        """The order of the bytes in a chunk."""
        own: Any = getattr(self.spec, "config", None)
        if not hasattr(own, "kv_cache_layout"):
            return self._older_page_format()
        if own.kv_cache_layout is None:
            raise Unreadable("vLLM has not chosen a layout yet")
        if not own.canonical_layout:
            return str(own.kv_cache_layout)
        mapping = imported("vllm.distributed.kv_transfer.kv_connector.v1.offloading.canonical_mapping")
        if mapping is None:
            raise Unreadable("there is no canonical_format_id")
        return f"canonical-{mapping.canonical_format_id(own.kv_cache_layout)}"

    def _older_page_format(self) -> str:
        """Before 0.27, each process has a layout, chosen by the connector or the operator. Its name does not define the
        order of keys and values, which 0.26 changed, so only engines of the same release share."""
        layouts, config = imported("vllm.v1.attention.backends.utils"), imported("vllm.config")
        if layouts is None or config is None or self.config is None:
            raise Unreadable("there is no get_kv_cache_layout")
        with config.set_current_vllm_config(self.config):
            name = str(layouts.get_kv_cache_layout()).lower()
        return f"{name}-of-{imported('vllm').__version__}"

    @property
    def parallel(self) -> Any:
        """The workers whose parts a chunk contains; "any": the bytes do not depend on their number."""
        own = self.spec.config if self._has_config else None
        if own is not None and self._is_same_for_all_sizes(own):
            return "any"
        tp_size, pp_size, pcp_size, dcp_size = self.sizes
        text = f"tp{tp_size}-pp{pp_size}-pcp{pcp_size}-dcp{dcp_size}"
        if pcp_size * dcp_size > 1:
            text += f"-interleave{self.config.parallel_config.cp_kv_cache_interleave_size}"
        if pp_size > 1:
            # The operator may choose the layers of each stage.
            text += f"-layers{imported('vllm.envs').VLLM_PP_LAYER_PARTITION or 'even'}"
        return text

    @staticmethod
    def _is_same_for_all_sizes(own: Any) -> bool:
        """Follows vLLM's own file tier, with one exception: if workers each have some heads of every layer, chunks are
        equal only if all layers of a head are contiguous."""
        if getattr(own, "replicated_layout", False):
            return True
        if not own.parallel.is_parallelism_agnostic:
            return False
        if getattr(own, "canonical_layout", False):
            return True
        return getattr(own, "kv_cache_layout", None) == _HEADS_OUTERMOST and own.cache.blocks_per_chunk == 1

    @property
    def replicas(self) -> str:
        """Whether a chunk has one copy for all workers."""
        return "one" if self._has_config and getattr(self.spec.config, "replicated_layout", False) else NONE

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        if self._has_config:
            own = self.spec.config.parallel
            sizes = (own.tp_size, own.pp_size, own.pcp_size, own.dcp_size)
        else:
            own = self.spec.vllm_config.parallel_config
            sizes = (
                own.tensor_parallel_size,
                own.pipeline_parallel_size,
                own.prefill_context_parallel_size,
                own.decode_context_parallel_size,
            )
        for size in sizes:
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise Unreadable(f"a size is {size!r}")
        return sizes


def identify(
    spec: Any,
    config: Any,
    chunk_bytes: int,
    settings: Settings,
    *,
    kv_cache_config: Any = None,
    missing_hooks: Sequence[str] = (),
) -> Identity:
    """The identity of an engine. ``config`` is its ``VllmConfig`` or None, ``kv_cache_config`` its ``KVCacheConfig``.

    If a fact cannot be read, the engine shares nothing. Raises ``ValueError`` for a model with neither name nor tag.
    """
    facts, shape = Facts("vllm", settings.facts), _Shape(spec, config)
    facts.read("chunk_bytes", lambda: chunk_bytes, where="the strides of the primary pool")
    facts.read("kv_dtype", lambda: shape.dtype, where="OffloadingConfig.model.dtype")
    facts.read("tokens", lambda: shape.tokens, where="OffloadingConfig.cache")
    facts.read("layers", lambda: shape.layers, where="OffloadingConfig.groups")
    facts.read("parallel", lambda: shape.parallel, where="OffloadingConfig.parallel")
    facts.read("replicas", lambda: shape.replicas, where="OffloadingConfig.replicated_layout")
    if framework.IS_INSTALLED:
        facts.read("page_format", lambda: shape.page_format, where="OffloadingConfig.kv_cache_layout")
        add_model_facts(facts, config, kv_cache_config or getattr(spec, "kv_cache_config", None))
    else:
        for name in ("page_format", *MODEL_FACTS):
            facts.read(name, lambda: NONE, where="vLLM, which is not installed")
    for name in missing_hooks:
        facts.read(name, _raise_no_hook, where="a method of vLLM that this version does not have")
    model = _model_name(facts, shape, settings.tag)
    files, unknown_weights = (None, None) if settings.fingerprint else _files(facts, config)
    is_any, sizes = _sizes(shape)
    return Identity(
        Namespace(
            model=model,
            dtype=_or_none(lambda: shape.dtype),
            layout=facts.layout,
            tag=settings.tag,
            tp_size=1 if is_any else sizes[0],
            pp_size=1 if is_any else sizes[1],
            computed=True,
        ),
        facts,
        files,
        unknown_weights,
    )


def _model_name(facts: Facts, shape: _Shape, tag: str | None) -> str | None:
    name = _or_none(lambda: shape.model)
    if name is None:
        facts.read("model", lambda: shape.model, where="OffloadingConfig.model.name")
        return None
    if name == "" and tag is None:
        raise ValueError(
            "the server has no model name, so that its chunks could be taken for those of another model: "
            'set "tag" in the tier\'s configuration'
        )
    return name or None


def _files(facts: Facts, config: Any) -> tuple[str | None, str | None]:
    """The fingerprint of the model's files, and why the weights are unknown. Unreadable files are a missing fact."""
    if config is None:
        return None, None
    try:
        return files_digest(config), None
    except Unreadable as error:
        return None, str(error)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        facts.read("files", lambda: _raise(text), where="the files of ModelConfig.model")
        return None, None


def _sizes(shape: _Shape) -> tuple[bool, tuple[int, int, int, int]]:
    try:
        return shape.parallel == "any", shape.sizes
    except Exception:
        # The sizes are then a missing fact, so that no other engine has this namespace.
        return True, (1, 1, 1, 1)


def _or_none(read: Any) -> str | None:
    try:
        value: str = read()
        return value
    except Exception:
        return None


def _raise(text: str) -> Any:
    raise Unreadable(text)


def _raise_no_hook() -> Any:
    raise Unreadable("it cannot be followed")


def warn_of_random_seed(config: Any) -> bool:
    """Warns if vLLM draws a seed for this process's keys alone; returns whether. ``config``: ``VllmConfig`` or None."""
    if os.environ.get("PYTHONHASHSEED") is not None:
        return False
    hashes = imported("vllm.v1.core.kv_cache_utils")
    if hashes is None:
        return False
    if hasattr(hashes, "resolve_none_hash_seed"):
        # Newer versions use one seed for all engines, except with weak hashes.
        algorithm = getattr(getattr(config, "cache_config", None), "prefix_caching_hash_algo", None)
        if algorithm is not None and algorithm not in _WEAK_HASHES:
            return False
    framework.logger.warning(
        "PYTHONHASHSEED is not set: vLLM draws the seed of this engine's keys at random, so that no other engine, and not even this one after a "
        "restart, finds its chunks; set PYTHONHASHSEED to one value, such as 0, on all engines that share chunks"
    )
    return True
