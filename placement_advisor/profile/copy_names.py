"""The names of copies in GPU profiles, and what their details say.

One table has the names of CUPTI and XProf (as TensorFlow writes them), ROCm, Kineto, nvprof and
Nsight Systems. A name that looks like a copy and is not in the table is an unclassified copy, never
compute.
"""

import re
from enum import StrEnum
from functools import lru_cache


class CopyKind(StrEnum):
    """Direction of a copy; the value is the row's name, as nvprof prints it."""

    HOST_TO_DEVICE = "[CUDA memcpy HtoD]"
    DEVICE_TO_HOST = "[CUDA memcpy DtoH]"
    HOST_TO_HOST = "[CUDA memcpy HtoH]"
    DEVICE_TO_DEVICE = "[CUDA memcpy DtoD]"
    PEER = "[CUDA memcpy PtoP]"
    WORKER = "[gRPC memcpy PtoP]"
    COLLECTIVE = "[NCCL collective]"
    UNCLASSIFIED = "[CUDA memcpy unclassified]"


# Matched at the start of an event's name; the first that matches counts. A spelling is
#   MemcpyP2P  MEMCPYPtoP        TensorFlow (CUPTI), XProf
#   Memcpy PtoP (Device -> …)    Kineto
#   [CUDA memcpy PtoP]           nvprof
#   [CUDA memcpy Peer-to-Peer]   Nsight Systems
#   [Unified Memory Memcpy HtoD] nvprof; Nsight Systems says CUDA Unified Memory memcpy
#   CopyDeviceToDevice           ROCm
# `__amd_rocclr_copyBuffer.kd` is a kernel that copies in any direction, so it stays unclassified.
_COPY = r"(?:Memcpy ?|MEMCPY|\[CUDA memcpy |\[(?:CUDA )?Unified Memory [Mm]emcpy )"
_SPELLINGS: tuple[tuple[re.Pattern[str], CopyKind], ...] = (
    (
        re.compile(rf"{_COPY}(?:P2P|P[tT]oP|Peer-to-Peer)|CopyPeerToPeer"),
        CopyKind.PEER,
    ),
    (
        re.compile(rf"{_COPY}(?:H2D|H[tT]oD|Host-to-Device)|CopyHostToDevice"),
        CopyKind.HOST_TO_DEVICE,
    ),
    (
        re.compile(rf"{_COPY}(?:D2H|D[tT]oH|Device-to-Host)|CopyDeviceToHost"),
        CopyKind.DEVICE_TO_HOST,
    ),
    (
        re.compile(rf"{_COPY}(?:D2D|D[tT]oD|Device-to-Device)|CopyDeviceToDevice"),
        CopyKind.DEVICE_TO_DEVICE,
    ),
    (
        re.compile(rf"{_COPY}(?:H2H|H[tT]oH|Host-to-Host)|CopyHostToHost"),
        CopyKind.HOST_TO_HOST,
    ),
    (re.compile(r"nccl"), CopyKind.COLLECTIVE),
    (
        re.compile(r"Memcpy|MEMCPY|\[CUDA memcpy|\[(?:CUDA )?Unified Memory|__amd_rocclr_copy"),
        CopyKind.UNCLASSIFIED,
    ),
)

_SIZE = re.compile(r"\b(?:size|num_bytes):(\d+)")
_DESTINATION = re.compile(r"\bdest:(\d+)")
# Details are shorter; more would be a damaged file.
_MAX_DETAILS_CHARS = 200
# More bytes than these no copy has, and no computer so many GPUs.
LARGEST_NUMBER = 2**53


# Profiles name the same kernels millions of times.
@lru_cache(maxsize=10_000)
def copy_kind(name: str) -> CopyKind | None:
    """Return the direction of the copy of that event name, None if it is no copy."""
    for spelling, kind in _SPELLINGS:
        if spelling.match(name):
            return kind
    return None


def copied_bytes(details: str) -> int | None:
    """Return the size in a ``memcpy_details`` stat, None if it gives none."""
    return _number(_SIZE, details)


def destination(details: str) -> int | None:
    """Return the number of the receiving GPU in a ``memcpy_details`` stat, None if not given."""
    return _number(_DESTINATION, details)


def _number(pattern: re.Pattern[str], details: str) -> int | None:
    found = pattern.search(details[:_MAX_DETAILS_CHARS])
    number = int(found[1]) if found else None
    return None if number is None or number > LARGEST_NUMBER else number
