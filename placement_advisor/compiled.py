"""Functions compiled by numba, which here reads and runs nothing from the current folder.

By itself numba takes settings from `.numba_config.yaml` in the current folder, among them a folder
of caches, and unpickles what lies there: an untrusted checkout would run code. Environment
variables (`NUMBA_…`) are the user's own and hold. Machine code is cached beside the package, or in
the user's cache folder; where neither can be written, each process compiles anew.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from placement_advisor.files.output import NOWHERE, cache_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Function = TypeVar("Function", bound="Callable[..., Any]")


@contextlib.contextmanager
def _no_yaml() -> Iterator[None]:
    """Keep YAML from being imported, without which numba reads no file of settings."""
    known = {name: sys.modules[name] for name in ("yaml",) if name in sys.modules}
    sys.modules["yaml"] = None  # type: ignore[assignment] # it is not to be had
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A Numba config file is found")
            yield
    finally:
        del sys.modules["yaml"]
        sys.modules.update(known)


# In a process of the user's own that has numba already, its settings are what the user made them.
if "numba" not in sys.modules:
    with _no_yaml():
        from numba.core import config
    config._config_fname = os.devnull  # It looks for the file again before it compiles.

from numba import njit  # noqa: E402
from numba.core.caching import (  # noqa: E402
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
)


class _Places(CompileResultCacheImpl):
    """Where machine code is kept."""

    if cache_folder() == NOWHERE:  # numba would take `~` for a folder of the current one.
        _locator_classes = [
            place
            for place in CompileResultCacheImpl._locator_classes
            if place in (UserProvidedCacheLocator, InTreeCacheLocator)
        ]


class _Cache(FunctionCache):
    """Machine code on disk, as far as the disk takes it."""

    _impl_class = _Places

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write a compiled function down; without room for it, it is compiled anew next time."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator that has numba compile a function; ``options`` are those of its `njit`."""

    def decorate(function: Function) -> Function:
        dispatcher = njit(**options)(function)
        with contextlib.suppress(RuntimeError):  # What numba raises where it can write nowhere.
            dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]
        decorated: Function = dispatcher
        return decorated

    return decorate
