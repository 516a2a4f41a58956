"""NVIDIA's GPUs as the driver's own tools describe them.

The parsers are functions of text, since they were written from NVIDIA's documentation and samples:
**none of this has run on a machine with a GPU**. Left out: GPUs of other makers, parts of a GPU
(MIG), and whether peers really read each other's memory, though the driver lets them.

Source: nvidia-smi(1), `nvidia-smi topo -m` and `-p2p r`; NVIDIA, ERR_NVGPUCTRPERM, for who may
profile.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from placement_advisor.files.contract import Count, Text

# Without its daemon the driver wakes each GPU first, about a second apiece.
_LIMIT_S = 30.0
# What it prints of two GPUs of which one reads the other's memory.
PEER_ACCESS = "OK"
# Enough for its one sentence on what failed.
_SAID_CHARS = 200
_QUERY = ("--query-gpu=index,name,driver_version,memory.total", "--format=csv,noheader,nounits")
_PARAMS = Path("/proc/driver/nvidia/params")
_MIB = 1 << 20
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Connection(StrEnum):
    """What lies between two GPUs."""

    NVLINK = "nvlink"
    PCIE = "pcie"
    SOCKETS = "across-sockets"


# PIX, PXB: PCIe switches. PHB, NODE: through the processor, within its own memory. SYS: through the
# link between processors. What NVIDIA calls NV1 to NV18 is a number of bonded NVLinks.
_PCIE_CODES = frozenset({"PIX", "PXB", "PHB", "NODE"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU."""

    index: Count
    """Number by the driver."""
    name: Text
    memory_bytes: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPair:
    """How two GPUs are connected."""

    first: Count
    second: Count
    code: Text
    """NVIDIA's code, such as `NV12`."""
    connection: Connection | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """What the driver's tools say; ``problem`` is why they say nothing, if they are there.

    ``pairs`` is None if it is not known. ``admins_profile`` is whether the driver lets only
    administrators profile, None if it does not say.
    """

    devices: tuple[Gpu, ...] = ()
    driver: str | None = None
    pairs: tuple[GpuPair, ...] | None = None
    admins_profile: bool | None = None
    problem: str | None = None


def find_gpus() -> Gpus:
    """Ask the driver's tools."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Gpus()
    try:
        devices, driver = parse_gpus(_said(tool, *_QUERY))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Gpus(problem=_reason(error))
    try:
        admins_profile = parse_params(_PARAMS.read_text())
    except OSError:
        admins_profile = None
    return Gpus(devices=devices, driver=driver, pairs=_pairs("-m"), admins_profile=admins_profile)


def find_peer_access() -> tuple[GpuPair, ...] | None:
    """Ask the driver which GPUs read each other's memory; None if it does not say.

    The code of a pair is `PEER_ACCESS`, or why there is none.
    """
    return _pairs("-p2p", "r")


def _pairs(*options: str) -> tuple[GpuPair, ...] | None:
    try:
        return parse_topology(_said("nvidia-smi", "topo", *options))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def common_memory(gpus: Gpus) -> int | None:
    """Return the memory of each GPU; None if it is not known, or not that of all.

    CUDA numbers GPUs in another order than the driver where they differ.
    """
    sizes = {gpu.memory_bytes for gpu in gpus.devices}
    return sizes.pop() if len(sizes) == 1 else None


def common_name(gpus: Gpus) -> str | None:
    """Return what each GPU is called; None if it is not known, or they differ."""
    names = {gpu.name for gpu in gpus.devices}
    return names.pop() if len(names) == 1 else None


def parse_gpus(table: str) -> tuple[tuple[Gpu, ...], str | None]:
    """Return the GPUs of a table of index, name, driver and MiB, and the driver's version.

    Raises:
        ValueError: it is no such table.
    """
    found, driver = [], None
    for line in filter(None, map(str.strip, table.splitlines())):
        index, _, rest = line.partition(",")
        cells = [cell.strip() for cell in rest.rsplit(",", 2)]
        if not index.isdecimal() or len(cells) != len(("name", "driver", "memory")):
            raise ValueError(f"it answered {line[:_SAID_CHARS]!r}")
        name, driver, memory = cells
        size_bytes = int(memory) * _MIB if memory.isdecimal() else None
        found.append(Gpu(index=int(index), name=name, memory_bytes=size_bytes))
    return tuple(found), driver


def parse_topology(matrix: str) -> tuple[GpuPair, ...]:
    """Return each pair of GPUs of the matrix once.

    Raises:
        ValueError: it holds no matrix.
    """
    lines = [line.split() for line in _ESCAPE.sub("", matrix).splitlines()]
    header = next((cells for cells in lines if cells[:1] == ["GPU0"]), None)
    if header is None:
        raise ValueError("no matrix of GPUs")
    # Network cards stand among the columns, processors and memory behind them.
    columns = {_number(cell): i + 1 for i, cell in enumerate(header) if _number(cell) is not None}
    rows = {_number(cells[0]): cells for cells in lines if cells and "X" in cells}
    pairs = []
    for first in sorted(number for number in rows if number is not None):
        for second, column in columns.items():
            if second is not None and first < second and column < len(rows[first]):
                code = rows[first][column]
                pairs.append(
                    GpuPair(first=first, second=second, code=code, connection=_connection(code))
                )
    return tuple(pairs)


def parse_params(params: str) -> bool | None:
    """Return whether the driver lets only administrators profile, None if it does not say."""
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", params, re.MULTILINE)
    return None if found is None else found[1] != "0"


def _number(name: str) -> int | None:
    found = re.fullmatch(r"GPU(\d+)", name)
    return None if found is None else int(found[1])


def _connection(code: str) -> Connection | None:
    if re.fullmatch(r"NV\d+", code):
        return Connection.NVLINK
    if code in _PCIE_CODES:
        return Connection.PCIE
    return Connection.SOCKETS if code == "SYS" else None


def _said(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    return ran.stdout


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it gave no answer within {_LIMIT_S:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        said = " ".join(f"{error.stdout or ''} {error.stderr or ''}".split())
        printed = "".join(sign if sign.isprintable() else "�" for sign in said[:_SAID_CHARS])
        return printed or f"it ended with status {error.returncode}"
    return str(error)
