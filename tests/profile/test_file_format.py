"""What a file is, by its content: every format under every name, and what is no profile."""

import gzip
import json
import os

import pytest
from recorded_profiles import event, gpu, read_alone, write

from placement_advisor.errors import AdvisorError
from placement_advisor.profile.device_trace import DeviceUse
from placement_advisor.profile.formats import FileFormat, recorded_run
from placement_advisor.profile.recorded_ops import read_recorded

ROW = " 90.00%  900.00us        10  90.000us  80.000us  100.00us  gemm\n"
HEADING = "Time(%)      Time     Calls       Avg       Min       Max  Name\n"
TRACE = (
    '"Start","Duration","Size","Throughput","Device","Src Dev","Dst Dev","Name"\n'
    "ms,us,MB,GB/s,,,,\n"
    '1.0,100.0,1.0,10.0,"V100 (0)","V100 (0)","V100 (1)","[CUDA memcpy PtoP]"\n'
    '2.0,300.0,,,"V100 (1)",,,"gemm"\n'
)
NSIGHT = "Start (ns),Duration (ns),Device,Name\n1000,500,A100 (0),gemm\n"
NSIGHT_SUMS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Min (ns),Max (ns),Name\n100.0,9,1,9.0,9,9,gemm\n"
)
KERNEL = {"ph": "X", "name": "gemm", "cat": "kernel", "ts": 1, "dur": 5, "args": {"device": 0}}
PYTORCH = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [KERNEL]})
PLANE = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "/device:GPU:0"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "Stream #1"}},
    {"ph": "X", "name": "gemm", "pid": 1, "tid": 2, "ts": 1, "dur": 5},
]


def xspace(folder):
    path = write(folder / "made.xplane.pb", gpu(0, [event("gemm", 10, 20)]))
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.mark.parametrize("name", ["profile", "p.json", "p.csv", "p.txt", "p.xplane.pb"])
def test_every_format_is_read_whatever_the_file_is_called(tmp_path, name):
    contents = {
        FileFormat.XSPACE: xspace(tmp_path),
        FileFormat.TRACE_VIEWER: json.dumps({"traceEvents": PLANE}).encode(),
        FileFormat.PYTORCH: PYTORCH.encode(),
        FileFormat.NVPROF_SUMMARY: (HEADING + ROW).encode(),
        FileFormat.NVPROF_TRACE: TRACE.encode(),
        FileFormat.NSIGHT_SUMMARY: NSIGHT_SUMS.encode(),
        FileFormat.NSIGHT_TRACE: NSIGHT.encode(),
    }
    path = tmp_path / name
    for form, content in contents.items():
        path.write_bytes(content)
        profile = read_alone(path)
        assert profile.form is form
        assert sum(d.total[DeviceUse.COMPUTE].time_ns for d in profile.totals.devices) > 0


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [(b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")],
)
def test_tables_are_read_with_byte_order_marks_and_newlines_of_windows(tmp_path, mark, encoding):
    """Windows' shell writes what a program prints as UTF-16."""
    path = tmp_path / "p.txt"
    for text in (HEADING + ROW, TRACE, NSIGHT, NSIGHT_SUMS):
        path.write_bytes(text.encode())
        plain = read_alone(path)
        path.write_bytes(mark + text.replace("\n", "\r\n").encode(encoding))
        assert read_alone(path) == plain


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the profile .* is empty"),
        (b"import keras\n", "is not a profile: nothing in it says of what kind"),
        (b"\x89PNG\r\n\x1a\n\0\0", "is not a profile"),
        (b"==7== Profiling result:\n", r"\(nvprof summary\) shows no GPU at work"),
        (b"SQLite format 3\0...", r"is a database \(SQLite\), as nvprof -o and Nsight Systems"),
        (b'{"a": [1, 2]}', "is JSON and not a Chrome trace"),
        (b'{"schema_version":4,"ops":[]}', "is an op graph, which `advisor trace` writes"),
        (gzip.compress(b'{"schema_version":4,"ops":[]}', mtime=0), "is an op graph"),
        (
            gzip.compress(b"\x0a\x02\x0a\x00", mtime=0),
            r"is packed \(gzip\), and what is in it is no Chrome",
        ),
        (b"\x1f\x8bxx", r"is packed \(gzip\), and corrupt"),
        (
            b"==7== Profiling result:\n   Start  Duration            Grid Size  Name\n",
            "is an nvprof GPU trace in columns of blanks",
        ),
        (
            b" Time (%)  Total Time (ns)  Instances  Avg (ns)  Name\n --------  ----\n",
            "is a table of Nsight Systems in columns of blanks",
        ),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, content, said):
    path = tmp_path / "p"
    path.write_bytes(content)
    with pytest.raises(AdvisorError, match=said) as caught:
        read_alone(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_folder_with_a_pytorch_trace_is_read(tmp_path):
    """As PyTorch's handler for TensorBoard leaves it, beside files of other kinds."""
    path = tmp_path / "logs" / "host_7.1700000000000.pt.trace.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(PYTORCH.encode()))
    (path.parent / "settings.json").write_text('{"batch": 32}')
    (path.parent / "notes.txt").write_text("a run\n")
    profile = read_alone(tmp_path)
    assert profile.form is FileFormat.PYTORCH
    assert profile.totals.path == str(path)
    assert profile.which is None


def test_of_several_files_the_newest_counts_and_that_is_said(tmp_path):
    older, newer = tmp_path / "a.pt.trace.json", tmp_path / "nvprof.csv"
    older.write_text(PYTORCH)
    newer.write_text(TRACE)
    os.utime(older, (1_000, 1_000))
    os.utime(newer, (2_000, 2_000))
    profile = read_alone(tmp_path)
    assert profile.form is FileFormat.NVPROF_TRACE
    assert profile.which.startswith("read was nvprof.csv, the newest of 2 profiles")
    # XSpaces come before what viewers save beside them.
    (tmp_path / "vm.xplane.pb").write_bytes(xspace(tmp_path))
    assert read_alone(tmp_path).form is FileFormat.XSPACE


def test_costs_come_from_profiles_of_tensorflow_alone(tmp_path):
    path = tmp_path / "p"
    path.write_text(PYTORCH)
    with pytest.raises(AdvisorError) as caught:
        read_recorded(path)
    said = f"{path} (PyTorch trace (Kineto)) does not say which op took which time"
    assert caught.value.message == said
    assert "op costs are read from profiles of TensorFlow" in (caught.value.hint or "")


def made(path, *, at_s=1000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x0a\x00")  # A plane of nothing.
    os.utime(path, (at_s, at_s))
    return path


def test_of_a_path_there_is_its_file_or_all_profiles_of_a_run_folder(tmp_path):
    path = made(tmp_path / "profile.bin")
    assert recorded_run(path).files == (path,)

    run = [made(tmp_path / f"{host}.xplane.pb") for host in ("a", "b")]
    made(tmp_path / "a.op_stats_v2.pb")
    made(tmp_path / "plugins" / "c.xplane.pb")
    assert recorded_run(tmp_path).files == tuple(run)


def test_of_a_logdir_the_run_with_the_last_name_counts_though_it_was_copied_first(tmp_path):
    runs = tmp_path / "train" / "plugins" / "profile"
    made(runs / "2026_11_20_23_59_59" / "vm.xplane.pb", at_s=3_000)
    newest = made(runs / "2026_11_21_20_31_55" / "vm.xplane.pb", at_s=1_000)
    read = recorded_run(tmp_path)
    assert read.files == (newest,)
    assert "2026_11_21_20_31_55, the newest of 2 runs" in read.note


def test_what_was_given_as_one_run_needs_no_word_on_which_it_is(tmp_path):
    path = made(tmp_path / "plugins" / "profile" / "2026_11_21_20_31_55" / "vm.xplane.pb")
    for named in (tmp_path, path.parent, path):
        assert recorded_run(named).note is None


def test_runs_with_other_names_go_by_the_time_of_their_files(tmp_path):
    newest = made(tmp_path / "single" / "vm.xplane.pb", at_s=3_000)
    made(tmp_path / "towers" / "vm.xplane.pb", at_s=1_000)
    assert recorded_run(tmp_path).files == (newest,)


def test_steps_that_an_analysis_simulated_are_no_recorded_profiles(tmp_path):
    runs = tmp_path / "runs" / "towers" / "plugins" / "profile"
    recorded = made(runs / "measured" / "vm.xplane.pb", at_s=1_000)
    for run in ("simulated", "both"):
        made(runs / run / "vm.xplane.pb", at_s=3_000)
    assert recorded_run(tmp_path).files != (recorded,)
    made(tmp_path / "tensorboard" / "plugins" / "placement" / "analysis.json")
    assert recorded_run(tmp_path).files == (recorded,)


def test_no_path_and_no_profile_are_errors_that_say_what_could_be_read(tmp_path):
    with pytest.raises(AdvisorError, match=r"there is no profile .*gone"):
        recorded_run(tmp_path / "gone")
    (tmp_path / "analysis.json").write_text('{"schema_version": 1}')
    with pytest.raises(AdvisorError, match="holds no profile") as caught:
        recorded_run(tmp_path)
    for said in ("plugins/profile", ".xplane.pb"):
        assert said in (caught.value.hint or "")
