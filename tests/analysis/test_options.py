"""Where an analysis goes that is given no folder, and what asks for it at another batch."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sample_analysis import OPTIONS

import placement_advisor.cli.analyze as analyze_command
from placement_advisor.analysis.hosts import HostOptions
from placement_advisor.cli.app import app
from placement_advisor.machine.testbed_plan import HostLink, TestbedKind
from placement_advisor.remote_hosts.host_requests import parse_hosts
from placement_advisor.report import analysis_folder
from placement_advisor.solvers.effort import Effort
from placement_advisor.tf.load.model_source import ModelSource

if TYPE_CHECKING:
    from placement_advisor.analysis.options import AnalyzeOptions

HOSTS = HostOptions(requests=parse_hosts("a:2,b:1"), launch="ssh {host}", link=HostLink.TLS)


def asked(path: str = "net.py", name: str | None = None, **options: Any) -> AnalyzeOptions:
    of_source = {"mode": None, "batch_size": None, "outputs": ()}
    of_source |= {key: options.pop(key) for key in of_source.keys() & options.keys()}
    source = ModelSource(path=path, name=name, time_limit_s=1.0, **of_source)  # type: ignore[arg-type]
    return replace(OPTIONS, source=source, output=None, **options)


@pytest.mark.parametrize(
    "words",
    [
        ["net.py"],
        ["my models/net.py:train step", "--batch-size", "16"],
        ["net.py", "--devices", "4", "--candidates", "towers,batch", "--ratios", "3:2.5:1:1"],
        ["net.py", "--testbed", "logical-cpus", "--open-ports", "--no-run"],
        ["net.py", "--hardware", "2xA100", "--costs", "logs/step.xplane.pb", "-o", "here"],
        ["net.py", "--quick", "--mode", "infer", "--outputs", "loss:0,top/score"],
        ["net.py", "--quick", "--effort", "20", "--seed", "3"],
        ["net.py", "--effort", "0.5", "--steps", "9", "--rounds", "90", "--refine", "0"],
        ["net.py", "--time-limit", "1000000.5"],
        ["net.py", "--hosts", "a:2,b:1", "--launch", "srun -w {host}", "--link", "direct"],
        ["net.py", "--hosts", "a:2@10.0.0.1:7600,b:1@10.0.0.2", "--secret", "a secret"],
    ],
)
def test_the_command_with_another_batch_asks_for_nothing_else(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AnalyzeOptions] = []
    monkeypatch.setattr(
        analysis_folder, "analyze_into_folder", lambda options, _: asked.append(options)
    )
    monkeypatch.setattr(analyze_command, "print_analysis", lambda *_, **__: None)
    app(["analyze", *words], standalone_mode=False)
    program, *again = shlex.split(asked[0].command(batch_size=208))
    app(again, standalone_mode=False)
    one, other = asked
    assert program == "advisor"
    assert other.source.batch_size == 208
    source = replace(other.source, batch_size=one.source.batch_size)
    assert replace(other, source=source) == replace(one, output=None)


@pytest.mark.parametrize(
    ("path", "folder"), [("a/net.py", "net"), ("exported/", "exported"), ("net.keras", "net")]
)
def test_the_output_is_named_after_the_model(path: str, folder: str) -> None:
    assert asked(path).folder == Path("advisor-out") / folder


def test_the_output_is_what_was_named() -> None:
    assert replace(asked(batch_size=4), output=Path("here")).folder == Path("here")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"quick": True, "run": False}, "net-quick"),
        ({"run": False}, "net-no-run"),
        ({"testbed": TestbedKind.NONE}, "net-no-run"),
        ({"hardware": "2xA100"}, "net-2xA100"),
        ({"hardware": "2xA100", "quick": True, "run": False}, "net-2xA100-quick"),
        (
            {"hardware": "2xA100", "costs": Path("logs/step.xplane.pb")},
            "net-2xA100-costs-step.xplane",
        ),
        ({"batch_size": 64}, "net-batch64"),
        (
            {"batch_size": 64, "mode": "infer", "quick": True, "run": False},
            "net-infer-batch64-quick",
        ),
        ({"outputs": ("loss:0", "top/score")}, "net-loss-0-top-score"),
        ({"devices": 4}, "net-4-devices"),
        ({"testbed": TestbedKind.LOGICAL_CPUS}, "net-logical-cpus"),
        ({"hosts": HOSTS, "devices": 3}, "net-a-2-b-1"),
        ({"candidates": ("towers", "batch")}, "net-towers+batch"),
        ({"ratios": (3.0, 2.5)}, "net-ratios-3-2.5"),
    ],
)
def test_what_asks_for_another_answer_has_a_folder_of_its_own(
    options: dict[str, Any], name: str
) -> None:
    assert asked(**options).folder == Path("advisor-out") / name


def test_what_makes_the_same_answer_surer_replaces_it() -> None:
    longer = asked(rounds=90, steps=9, refine=0, effort=Effort(units=60.0, seed=3))
    assert longer.folder == asked().folder


def test_who_was_measured_on_stand_ins_is_followed_only_where_they_are_asked_for() -> None:
    assert asked("train.py").run_command(None) == "advisor run train.py"
    assert asked("train.py").run_command(2) == "advisor run train.py --devices 2"


def test_two_objects_of_a_file_have_folders_of_their_own() -> None:
    assert asked(name="train_step").folder.name == "net-train_step"
    assert asked(name="steps.train/../..").folder.name == "net-steps.train-..-.."


def test_a_name_that_is_too_long_for_a_file_system_is_told_from_others_by_a_hash() -> None:
    one, other = (asked(outputs=("x" * 300, last)).folder.name for last in "ab")
    assert len(one) == len(other) == 100 + 1 + 16
    assert one != other


@pytest.mark.parametrize(
    ("hardware", "name"),
    [
        ("machines/two cards.toml", "net-two-cards"),
        ("2x(8xV100-NVLink)-10GbE", "net-2x-8xV100-NVLink-10GbE"),
        ("GTX1080Ti+GTX1080-PCIe3", "net-GTX1080Ti+GTX1080-PCIe3"),
    ],
)
def test_hardware_of_any_name_gives_a_folder_below_the_one_for_all(
    hardware: str, name: str
) -> None:
    assert asked(hardware=hardware).folder == Path("advisor-out") / name
