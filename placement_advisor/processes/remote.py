"""Modules that only children import, to be named by whoever calls their functions there."""

from __future__ import annotations


class RemoteModule:
    """Stands for a module where that must not be imported; see `Callee.call`."""

    def __init__(self, name: str) -> None:
        """Stand for the module of this name."""
        self.__name__ = name

    def __getattr__(self, name: str) -> RemoteFunction:
        """Return what stands for a function of the module; nobody looks whether there is one."""
        return RemoteFunction(self.__name__, name)


class RemoteFunction:
    """Stands for a function: it has the names by which a function is found, and no more."""

    def __init__(self, module: str, name: str) -> None:
        """Stand for the function of this name in a module."""
        self.__module__ = module
        self.__name__ = self.__qualname__ = name
