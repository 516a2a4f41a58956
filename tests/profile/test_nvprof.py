"""Summaries of nvprof, in the layouts of its versions."""

from __future__ import annotations

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.nvprof import nvprof_totals
from placement_advisor.profile.timeline.device_trace import Use

NEW = """\
==7== NVPROF is profiling process 7, command: python train.py
==7== Profiling application: python train.py
==7== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   60.00%  3.00000s      1000  3.0000ms  1.0000ms  5.0000ms  void gemm<int>(T*)
                   20.16%  1.00980s     78292  12.898us  4.3190us  893.33us  [CUDA memcpy PtoP]
                   10.00%  500.00ms       100  5.0000ms     992ns  9.0000ms  [CUDA memcpy DtoD]
                    5.00%  250.00ms        10  25.000ms  20.000ms  30.000ms  ncclAllReduceRingKernel
                    4.84%  240.20ms        10  24.020ms  20.000ms  30.000ms  [CUDA memset]
      API calls:   99.00%  9.00000s      5000  1.8000ms  1.0000us  20.000ms  cudaLaunchKernel
                    1.00%  90.000ms        10  9.0000ms  1.0000us  20.000ms  cudaMemcpy
"""
OLD = """\
==7== Profiling result:
Time(%)      Time     Calls       Avg       Min       Max  Name
 90.00%  900.00us        10  90.000us  80.000us  100.00us  gemm
 10.00%  100.00us        10  10.000us  8.0000us  12.000us  [CUDA memcpy HtoD]

==7== API calls:
Time(%)      Time     Calls       Avg       Min       Max  Name
100.00%  900.00us        10  90.000us  80.000us  100.00us  cudaLaunch
"""
PER_GPU = """\
==7== Profiling result:
==7== Device "Tesla K80 (0)"
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:  100.00%  900.00us        10  90.000us  80.000us  100.00us  gemm
==7== Device "Tesla K80 (1)"
 GPU activities:  100.00%  300.00us        10  30.000us  20.000us  40.000us  gemm
"""


def test_rows_are_told_apart_by_what_they_are() -> None:
    profile = nvprof_totals("summary.txt", NEW.splitlines())
    (device,) = profile.devices
    assert device.device == "all GPUs"
    assert {use: amount.time_ns for use, amount in device.total.items()} == {
        Use.COMPUTE: 3_240_200_000,
        Use.PEER: 1_009_800_000,
        Use.HOST: 0,
        Use.WITHIN: 500_000_000,
        Use.COLLECTIVE: 250_000_000,
        Use.UNCLASSIFIED: 0,
    }
    rows = {row.name: row for row in profile.activities}
    assert "cudaMemcpy" not in rows
    peer = rows["[CUDA memcpy PtoP]"]
    assert (peer.calls, peer.min_ns, peer.max_ns, peer.is_copy) == (78_292, 4_319, 893_330, True)
    assert not rows["void gemm<int>(T*)"].is_copy


def test_what_a_summary_cannot_say_is_unknown() -> None:
    profile = nvprof_totals("summary.txt", NEW.splitlines())
    (device,) = profile.devices
    assert (profile.span_ns, device.idle_ns, device.per_step) == (None, None, None)
    assert device.total[Use.PEER].exposed_ns is None


def test_the_layout_without_types_is_read() -> None:
    (device,) = nvprof_totals("summary.txt", OLD.splitlines()).devices
    assert device.total[Use.COMPUTE].time_ns == 900_000
    assert device.total[Use.HOST].time_ns == 100_000


def test_gpus_that_are_told_apart_stay_so() -> None:
    profile = nvprof_totals("summary.txt", PER_GPU.splitlines())
    assert {d.device: d.total[Use.COMPUTE].time_ns for d in profile.devices} == {
        "GPU:0": 900_000,
        "GPU:1": 300_000,
    }


@pytest.mark.parametrize("text", ["==7== Profiling result:\n", "==7== Profiling result:\n 9% x\n"])
def test_a_summary_without_rows_is_refused(text: str) -> None:
    with pytest.raises(AdvisorError, match=r"summary\.txt shows no GPU at work"):
        nvprof_totals("summary.txt", text.splitlines())
