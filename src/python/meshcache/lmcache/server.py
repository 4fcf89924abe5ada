"""The state of this process's LMCache server: the pages that its engines have registered."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .._engines.identity import Unreadable, canonical

#: Element types of one byte do not define what a byte means, as the kind of fp8 and its scales are up to the engine.
_OPAQUE: Final = ("uint8", "int8", "float8")


@dataclass(frozen=True)
class PageForm:
    """Element types and shapes of the pages of one object group, in order."""

    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    #: Length of an unconverted (e.g. uncompressed) page in bytes.
    length: int

    @property
    def text(self) -> str:
        """A text that is equal for equal forms in every release of LMCache."""
        shapes = ",".join("x".join(map(str, shape)) for shape in self.shapes)
        return f"dtype={','.join(self.dtypes)} shape={shapes}"

    @property
    def is_opaque(self) -> bool:
        """Whether the element type does not define what the bytes mean."""
        return any(dtype.startswith(_OPAQUE) for dtype in self.dtypes)

    @staticmethod
    def of(description: Any) -> PageForm:
        """Reads the form from LMCache's ``MemoryLayoutDesc``. Raises what its attributes raise, and ``Unreadable``."""
        dtypes = tuple(str(canonical(dtype)) for dtype in description.dtypes)
        shapes = tuple(tuple(int(size) for size in shape) for shape in description.shapes)
        if not dtypes or len(dtypes) != len(shapes):
            raise Unreadable(f"a page has {len(dtypes)} element types and {len(shapes)} shapes")
        length = 0
        for dtype, shape in zip(description.dtypes, shapes):
            bytes_here = int(dtype.itemsize)
            for size in shape:
                bytes_here *= size
            length += bytes_here
        return PageForm(dtypes, shapes, length)


@dataclass(frozen=True)
class Registration:
    """The pages of all engines with one model name and world size, to which LMCache gives equal keys in any form."""

    model: str
    world_size: int
    #: By object group.
    forms: Mapping[int, PageForm]
    #: Whether engines with different forms have registered, so that the server may have pages of either under any key.
    is_mixed: bool = False
    #: Why the form of these pages is unknown; empty if it is known.
    problem: str = ""


class Observer(Protocol):
    """Is notified about engines."""

    def registered(self, registration: Registration) -> None:
        """An engine has registered. The registration describes the pages of all engines of its model."""

    def cleared(self) -> None:
        """LMCache has cleared its memory."""


class LMCacheServer:
    """Engines of this process's server that have registered since the plug-in was loaded. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registrations: dict[tuple[str, int], Registration] = {}
        self._observers: weakref.WeakSet[Observer] = weakref.WeakSet()

    def add(self, observer: Observer) -> None:
        """Notifies an observer of existing registrations, and of further ones while it lives."""
        with self._lock:
            self._observers.add(observer)
            known = list(self._registrations.values())
        for registration in known:
            observer.registered(registration)

    def register(self, model: str, world_size: int, merged: Any, groups: Mapping[int, Any] | None) -> None:
        """Called when an engine has registered its pages: a ``MemoryLayoutDesc`` per group, or one for all groups."""
        problem, forms = "", {}
        try:
            described = {0: merged} if groups is None else groups
            forms = {int(group): PageForm.of(description) for group, description in described.items()}
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        with self._lock:
            before = self._registrations.get((model, world_size))
            now = Registration(model, world_size, forms, problem=problem)
            if before is not None and (before.is_mixed or before.forms != forms):
                now = Registration(model, world_size, forms, is_mixed=True, problem=problem)
            self._registrations[model, world_size] = now
        self._tell(lambda observer: observer.registered(now))

    def cleared(self) -> None:
        """Called when LMCache has cleared its memory on behalf of an engine or an operator."""
        self._tell(lambda observer: observer.cleared())

    def find(self, model: str, world_size: int) -> Registration | None:
        """The registration for a model name and world size; None if no engine has registered."""
        return self._registrations.get((model, world_size))

    def _tell(self, call: Callable[[Observer], None]) -> None:
        with self._lock:
            observers = list(self._observers)
        for observer in observers:
            call(observer)
