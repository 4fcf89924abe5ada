"""What is known of the LMCache server of this process: the pages that its engines have registered."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from .._engines.identity import Unreadable, canonical

#: Element types of one byte do not say what a byte means: the kind of fp8 and its scales are the engine's.
_OPAQUE: Final = ("uint8", "int8", "float8")


@dataclass(frozen=True)
class PageForm:
    """Element types and shapes of the pages of one object group, in order."""

    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    #: Bytes of a page that nothing has been done to, such as compression.
    length: int

    @property
    def text(self) -> str:
        """Equal for equal forms, in every release of LMCache."""
        shapes = ",".join("x".join(map(str, shape)) for shape in self.shapes)
        return f"dtype={','.join(self.dtypes)} shape={shapes}"

    @property
    def is_opaque(self) -> bool:
        """Whether the element type leaves open what the bytes mean."""
        return any(dtype.startswith(_OPAQUE) for dtype in self.dtypes)

    @staticmethod
    def of(description: Any) -> PageForm:
        """The form in a ``MemoryLayoutDesc`` of LMCache. Raises what its attributes raise, and ``Unreadable``."""
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
    """The pages of all engines with one model name and world size. LMCache gives them the same keys, whatever they have registered."""

    model: str
    world_size: int
    #: By object group.
    forms: Mapping[int, PageForm]
    #: Set when engines of different forms have registered: the server's memory may then have pages of either under any key.
    is_mixed: bool = False
    #: Why the form of these pages is unknown.
    problem: str = ""


class Observer(Protocol):
    """What hears of engines."""

    def registered(self, registration: Registration) -> None:
        """An engine of a model has registered: these are the pages of all of them now."""

    def cleared(self) -> None:
        """LMCache has cleared its memory."""


class LMCacheServer:
    """Engines of this process's server, from when the plug-in was loaded. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._registrations: dict[tuple[str, int], Registration] = {}
        self._observers: weakref.WeakSet[Observer] = weakref.WeakSet()

    def add(self, observer: Observer) -> None:
        """Tells an observer what has registered until now, and all that follows, for as long as it lives."""
        with self._lock:
            self._observers.add(observer)
            known = list(self._registrations.values())
        for registration in known:
            observer.registered(registration)

    def register(self, model: str, world_size: int, merged: Any, groups: Mapping[int, Any] | None) -> None:
        """An engine has registered its pages: ``MemoryLayoutDesc`` of each object group, or only of all of them."""
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
        """LMCache has dropped its memory: an engine or an operator has asked for it."""
        self._tell(lambda observer: observer.cleared())

    def find(self, model: str, world_size: int) -> Registration | None:
        """The engines of this name and size; None: none has registered."""
        return self._registrations.get((model, world_size))

    def _tell(self, call: Callable[[Observer], None]) -> None:
        with self._lock:
            observers = list(self._observers)
        for observer in observers:
            call(observer)
