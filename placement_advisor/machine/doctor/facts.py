"""What was found out about this machine, before it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement_advisor.machine.doctor.packages import Package
    from placement_advisor.machine.nvidia import Gpus
    from placement_advisor.machine.system import Cores


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFigures:
    """A calibration on file: of which testbed, how old, whether it holds, and its main figures.

    ``small`` and ``large`` are bytes and ns of the smallest and of the largest copy measured, the
    median over links; None if none took any time.
    """

    testbed: str
    devices: tuple[str, ...]
    age_ns: int
    holds: bool
    small: tuple[int, int] | None
    large: tuple[int, int] | None
    step_overhead_ns: int
    quantum_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """This machine, as far as the advisor depends on it.

    ``visible_gpus`` is how many TensorFlow may see, ``load`` how many processes wanted to run on
    average in the last minute. What is not known is None.
    """

    advisor_version: str
    python_version: str
    wanted_python: str | None
    packages: tuple[Package, ...]
    has_profile_plugin: bool
    has_cuda_libraries: bool
    visible_gpus: int
    gpus: Gpus
    has_sys_admin: bool | None
    cores: Cores
    load: float
    available_memory_bytes: int
    has_private_network: bool
    calibrations: tuple[KeptFigures, ...]
