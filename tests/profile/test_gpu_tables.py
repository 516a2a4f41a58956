"""Tables of nvprof and Nsight Systems, in the layouts of their versions."""

import pytest

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.copy_names import CopyKind
from placement_advisor.profile.device_trace import DeviceUse, Route
from placement_advisor.profile.formats import FileFormat
from placement_advisor.profile.gpu_tables import gpu_trace, summary_totals
from placement_advisor.profile.totals import totals_of

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


def summary(text, form=FileFormat.NVPROF_SUMMARY):
    return summary_totals("summary.txt", form, map(str.strip, text.splitlines()))


def trace(text, form=FileFormat.NVPROF_TRACE):
    return totals_of(gpu_trace("trace.csv", form, map(str.strip, text.splitlines())))


def test_rows_are_told_apart_by_what_they_are_and_what_a_summary_cannot_say_is_unknown():
    profile = summary(NEW)
    (device,) = profile.devices
    assert device.device == "all GPUs"
    assert {use: amount.time_ns for use, amount in device.total.items()} == {
        DeviceUse.COMPUTE: 3_240_200_000,
        DeviceUse.PEER: 1_009_800_000,
        DeviceUse.HOST: 0,
        DeviceUse.WITHIN: 500_000_000,
        DeviceUse.COLLECTIVE: 250_000_000,
        DeviceUse.UNCLASSIFIED: 0,
    }
    rows = {row.name: row for row in profile.activities}
    assert "cudaMemcpy" not in rows
    peer = rows["[CUDA memcpy PtoP]"]
    assert (peer.calls, peer.min_ns, peer.max_ns, peer.is_copy) == (78_292, 4_319, 893_330, True)
    assert not rows["void gemm<int>(T*)"].is_copy

    assert (profile.span_ns, device.idle_ns, device.per_step) == (None, None, None)
    assert device.total[DeviceUse.PEER].exposed_ns is None


def test_the_layout_without_types_and_that_of_several_gpus_are_read():
    (device,) = summary(OLD).devices
    assert device.total[DeviceUse.COMPUTE].time_ns == 900_000
    assert device.total[DeviceUse.HOST].time_ns == 100_000

    profile = summary(PER_GPU)
    compute_ns = {d.device: d.total[DeviceUse.COMPUTE].time_ns for d in profile.devices}
    assert compute_ns == {"GPU:0": 900_000, "GPU:1": 300_000}


@pytest.mark.parametrize("text", ["==7== Profiling result:\n", "==7== Profiling result:\n 9% x\n"])
def test_a_summary_without_rows_is_refused(text):
    said = r"^summary\.txt \(nvprof summary\) shows no GPU at work$"
    with pytest.raises(AdvisorError, match=said):
        summary(text)


CSV = """\
==7== Profiling result:
"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,us,us,us,
"GPU activities",75.000000,3.000000,1000,3.000000,1.000000,5.000000,"void gemm<int, 4>(T*)"
"GPU activities",25.000000,1.000000,10,100.000000,4.319000,893.330000,"[CUDA memcpy PtoP]"
"API calls",99.000000,9.000000,5000,1.800000,1.000000,20.000000,"cudaLaunchKernel"
"""
NSIGHT = """\
 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,3000000,1000,3000.0,3000.0,1000,5000,9.0,"void gemm<int, 4>(T*)"

Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,1000000,10,100000.0,9.0,4319,893330,9.0,[CUDA memcpy Peer-to-Peer]

Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,9000000,5000,1800.0,9.0,1000,20000,9.0,cudaLaunchKernel
"""


@pytest.mark.parametrize(
    ("text", "form"), [(CSV, FileFormat.NVPROF_SUMMARY), (NSIGHT, FileFormat.NSIGHT_SUMMARY)]
)
def test_summaries_as_csv_have_their_units_in_the_heading_or_below_it(text, form):
    profile = summary(text, form)
    (device,) = profile.devices
    assert device.total[DeviceUse.COMPUTE].time_ns == 3_000_000
    assert device.total[DeviceUse.PEER].time_ns == 1_000_000
    kernel, copy = profile.activities
    assert (kernel.name, kernel.calls) == ("void gemm<int, 4>(T*)", 1_000)
    assert (copy.calls, copy.min_ns, copy.max_ns) == (10, 4_319, 893_330)


def test_rows_of_one_name_are_all_counted_and_that_is_said():
    """Two summaries under comments, as an issue or a readme has them."""
    profile = summary(
        "Time(%)      Time     Calls       Avg       Min       Max  Name\n"
        "# on one GPU\n"
        " 90.00%  900.00us        10  90.000us  80.000us  100.00us  gemm\n"
        "# on two\n"
        " 80.00%  700.00us        10  70.000us  60.000us  100.00us  gemm\n"
        " 10.00%  100.00us        10  10.000us  8.0000us  12.000us  [CUDA memcpy PtoP]\n"
    )
    assert profile.devices[0].total[DeviceUse.COMPUTE].time_ns == 1_600_000
    assert [row.total_ns for row in profile.activities] == [900_000, 700_000, 100_000]
    assert any(note.startswith("gemm has several rows") for note in profile.notes)
    assert not any("several rows" in note for note in summary(OLD).notes)


TRACE = """\
==7== NVPROF is profiling process 7, command: python train.py
epoch 1, loss 0.3
==7== Profiling result:
"Start","Duration","Grid X","Size","Throughput","Device","Stream","Src Dev","Dst Dev","Name"
ms,us,,KB,MB/s,,,,,
1.000000,100.000000,64,,,"Tesla V100 (0)","7",,,"void gemm<int, 4>(T*) [207]"
1.050000,100.000000,,40.0,{rate},"V100 (0)","8","V100 (0)","V100 (1)","[CUDA memcpy PtoP]"
# a comment
1.200000,30.000000,,8.0,{small},"Tesla V100 (0)","8",,,"[CUDA memcpy DtoH]"
1.250000,50.000000,64,,,"Tesla V100 (1)","7",,,"void gemm<int, 4>(T*) [311]"
1.300000,10.000000,,,,,,,,"cudaLaunchKernel"
"""
IN_THOUSANDS = TRACE.format(rate="400.0", small="266.66667")
IN_1024 = TRACE.format(rate="390.625", small="260.41667")


def test_a_gpu_trace_has_spans_routes_and_bytes():
    profile = trace(IN_THOUSANDS)
    first, second = profile.devices
    assert (first.device, second.device) == ("GPU:0", "GPU:1")
    assert first.total[DeviceUse.COMPUTE].time_ns == 100_000
    # Of 100 µs the first 50 lie under the sender's kernel.
    peer = first.total[DeviceUse.PEER]
    assert (peer.time_ns, peer.exposed_ns) == (100_000, 50_000)
    assert second.total[DeviceUse.COMPUTE].time_ns == 50_000
    routes = {route.route: (route.count, route.size_bytes) for route in profile.routes}
    assert routes == {
        Route("GPU:0", "GPU:1", CopyKind.PEER): (1, 40_000),
        Route("GPU:0", "host", CopyKind.DEVICE_TO_HOST): (1, 8_000),
    }
    assert profile.span_ns == 300_000
    assert profile.step_ns == ()
    # Numbers of launches are no part of a kernel's name, and calls of the host no work of a GPU.
    calls = {row.name: row.calls for row in profile.activities}
    assert calls == {"void gemm<int, 4>(T*)": 2, "[CUDA memcpy PtoP]": 1, "[CUDA memcpy DtoH]": 1}
    assert profile.notes == ()


def test_units_are_told_by_sizes_and_rates_and_a_damaged_row_is_counted():
    assert sorted(route.size_bytes for route in trace(IN_1024).routes) == [8_192, 40_960]
    unknown = trace(IN_THOUSANDS.replace("KB,MB/s", "KB,KB/s"))
    assert sorted(route.size_bytes for route in unknown.routes) == [8_000, 40_000]
    assert "a kB is taken for 1,000 bytes; should it be 1,024" in unknown.notes[0]

    profile = trace(IN_THOUSANDS.replace("1.050000", "x"))
    assert profile.notes == ("1 of its rows cannot be read, and is left out",)
    assert [route.route.kind for route in profile.routes] == [CopyKind.DEVICE_TO_HOST]


def test_a_trace_of_nsight_has_its_units_in_the_heading():
    profile = trace(
        "Start (ns),Duration (ns),CorrId,Bytes (MB),Throughput (MB/s),Device,Strm,Name\n"
        '1000,500,1,,,NVIDIA A100-SXM4-40GB (0),7,"gemm, with a comma"\n'
        "2000,1000,2,0.004,4000.0,NVIDIA A100-SXM4-40GB (0),7,[CUDA memcpy Host-to-Device]\n"
        "3000,10,3,0.004,4000.0,NVIDIA A100-SXM4-40GB (0),7,"
        "[CUDA Unified Memory memcpy HtoD]\n",
        FileFormat.NSIGHT_TRACE,
    )
    (device,) = profile.devices
    assert device.total[DeviceUse.COMPUTE].time_ns == 500
    assert device.total[DeviceUse.HOST].time_ns == 1_010
    assert [route.size_bytes for route in profile.routes] == [8_000]


@pytest.mark.parametrize(
    "text",
    [
        IN_THOUSANDS.replace("(0)", "").replace("(1)", ""),
        '"Start","Duration","Name","Correlation_ID"\nms,us,,\n1.0,2.0,"cudaMalloc",3\n',
    ],
)
def test_a_trace_of_no_gpu_is_refused(text):
    with pytest.raises(AdvisorError, match=r"^trace\.csv \(nvprof GPU trace\) shows no GPU"):
        trace(text)
