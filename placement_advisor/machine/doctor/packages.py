"""Installed packages against what this one and they themselves want; nothing is imported.

Left out: requirements for some systems or extras only, packages outside of the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ADVISOR = "placement-advisor"
# Analysis and reports need the first ones, TensorBoard the others.
NEEDED = ("tensorflow", "keras", "numba", "numpy", "networkx", "matplotlib", "protobuf")
VIEWERS = ("tensorboard", "tensorboard-plugin-profile", "xprof")

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^]]*])?\s*\(?([^;)]*)\)?\s*(;.*)?")
_CLAUSE = re.compile(r"\s*(>=|<=|==|!=|~=|>|<)\s*([0-9][\w.*+!-]*)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package: its version if it is installed, and what the advisor wants.

    ``unmet`` has who wants another version, and which.
    """

    name: str
    version: str | None
    wanted: str | None
    unmet: tuple[tuple[str, str], ...] = ()


def installed_packages() -> tuple[Package, ...]:
    """Return the packages that matter, installed or not."""
    names = (*NEEDED, *VIEWERS)
    versions = {name: _version(name) for name in names}
    requirements = {name: _requirements(name) for name in (ADVISOR, *names)}
    return packages(versions, requirements)


def wanted_python() -> str | None:
    """Return the versions of Python that the advisor wants, None if it is not installed."""
    try:
        content = metadata.metadata(ADVISOR)
    except metadata.PackageNotFoundError:
        return None
    return next(iter(content.get_all("Requires-Python") or ()), None)


def has_profile_plugin() -> bool:
    """Return whether TensorBoard will find a plugin for profiles."""
    return any(point.name == "profile" for point in metadata.entry_points(group=_PLUGINS))


def has_cuda_libraries() -> bool:
    """Return whether cuDNN is installed as a package; it may be on the system instead."""
    return any(_version(name) is not None for name in ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"))


_PLUGINS = "tensorboard_plugins"


def packages(
    versions: Mapping[str, str | None], requirements: Mapping[str, Sequence[str]]
) -> tuple[Package, ...]:
    """Return each package with what the requirements of all of them ask of it."""
    asked: dict[str, dict[str, str]] = {name: {} for name in versions}
    for asker, lines in requirements.items():
        for line in lines:
            found = _REQUIREMENT.fullmatch(line)
            # A marker says for which systems or extras the line holds.
            if found and not found[3] and _canonical(found[1]) in asked:
                asked[_canonical(found[1])][asker] = found[2].strip()
    return tuple(
        Package(
            name=name,
            version=version,
            wanted=asked[name].get(ADVISOR) or None,
            unmet=tuple(
                (asker, wanted)
                for asker, wanted in asked[name].items()
                if version is not None and not fits(version, wanted)
            ),
        )
        for name, version in versions.items()
    )


def fits(version: str, wanted: str) -> bool:
    """Return whether a version is among those wanted; clauses of other forms are taken as met.

    >>> fits("2.21.0", ">=2.21,<2.22"), fits("2.22.0rc1", "<2.22"), fits("3.0", "~=3.1")
    (True, False, False)
    """
    return all(
        _meets(_release(version), found[1], found[2])
        for clause in wanted.split(",")
        if (found := _CLAUSE.fullmatch(clause))
    )


def _meets(release: tuple[int, ...], sign: str, text: str) -> bool:
    bound = _release(text)
    if sign == "~=":
        return _meets(release, ">=", text) and release[: len(bound) - 1] == bound[:-1]
    if text.endswith(".*"):
        equal = (*release, *[0] * len(bound))[: len(bound)] == bound
        return equal is (sign == "==")
    length = max(len(release), len(bound))
    have, limit = ((*part, *[0] * (length - len(part))) for part in (release, bound))
    return {
        ">=": have >= limit,
        "<=": have <= limit,
        ">": have > limit,
        "<": have < limit,
        "==": have == limit,
        "!=": have != limit,
    }[sign]


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version; what marks it as early or local is left out."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requirements(name: str) -> Sequence[str]:
    try:
        return metadata.requires(name) or ()
    except metadata.PackageNotFoundError:
        return ()
