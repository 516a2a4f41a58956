"""Every spelling of a copy that is known to reach a profile."""

import pytest

from placement_advisor.profile.device_trace import CopyKind, copied_bytes, copy_kind, destination


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MemcpyP2P", CopyKind.PEER),
        ("MEMCPYPtoP", CopyKind.PEER),
        ("Memcpy PtoP (Device -> Device)", CopyKind.PEER),
        ("[CUDA memcpy PtoP]", CopyKind.PEER),
        ("[CUDA memcpy Peer-to-Peer]", CopyKind.PEER),
        ("MemcpyH2D", CopyKind.HOST_TO_DEVICE),
        ("MEMCPYHToD", CopyKind.HOST_TO_DEVICE),
        ("MEMCPYHtoD", CopyKind.HOST_TO_DEVICE),
        ("Memcpy HtoD (Pageable -> Device)", CopyKind.HOST_TO_DEVICE),
        ("[CUDA memcpy HtoD]", CopyKind.HOST_TO_DEVICE),
        ("[CUDA memcpy Host-to-Device]", CopyKind.HOST_TO_DEVICE),
        ("CopyHostToDevice", CopyKind.HOST_TO_DEVICE),
        ("MemcpyD2H", CopyKind.DEVICE_TO_HOST),
        ("MEMCPYDToH", CopyKind.DEVICE_TO_HOST),
        ("[CUDA memcpy Device-to-Host]", CopyKind.DEVICE_TO_HOST),
        ("CopyDeviceToHost", CopyKind.DEVICE_TO_HOST),
        ("MemcpyD2D", CopyKind.DEVICE_TO_DEVICE),
        ("MEMCPYDToD", CopyKind.DEVICE_TO_DEVICE),
        ("MEMCPYDtoD", CopyKind.DEVICE_TO_DEVICE),
        ("[CUDA memcpy Device-to-Device]", CopyKind.DEVICE_TO_DEVICE),
        ("CopyDeviceToDevice", CopyKind.DEVICE_TO_DEVICE),
        ("MEMCPYHToH", CopyKind.HOST_TO_HOST),
        ("ncclKernel_AllReduce_RING_LL_Sum_float", CopyKind.COLLECTIVE),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", CopyKind.COLLECTIVE),
        ("MemcpyOther", CopyKind.UNCLASSIFIED),
        ("[CUDA memcpy HtoA]", CopyKind.UNCLASSIFIED),
        ("__amd_rocclr_copyBuffer.kd", CopyKind.UNCLASSIFIED),
        ("volta_sgemm_128x64_nn", None),
        ("Memset", None),
        ("void tensorflow::CopyKernel<float>(float*)", None),
    ],
)
def test_copies_are_known_by_all_their_names(name, kind):
    assert copy_kind(name) is kind


@pytest.mark.parametrize(
    ("details", "size_bytes", "target"),
    [
        ("kind_src:device kind_dst:device size:4096 dest:1 async:1", 4096, 1),
        ("kind:pageable size:8 dest:0 async:1", 8, 0),
        ("size:16 dest:3 async:0", 16, 3),
        ("kind:Unknown size:32", 32, None),
        ("num_bytes:64", 64, None),
        ("oversize:5 nodest:2", None, None),
        ("", None, None),
    ],
)
def test_bytes_and_destination_are_read_from_all_details(details, size_bytes, target):
    assert copied_bytes(details) == size_bytes
    assert destination(details) == target


@pytest.mark.parametrize(("size", "read"), [(2**53, 2**53), (2**53 + 1, None)])
def test_a_number_beyond_what_any_copy_has_is_none(size: int, read: int | None) -> None:
    assert copied_bytes(f"size:{size} dest:1") == read
    assert destination(f"size:1 dest:{size}") == read
