"""Where an analysis goes that is given no folder: nothing takes the place of what says more."""

from __future__ import annotations

from pathlib import Path

import pytest

from placement_advisor.analysis.options import default_output
from placement_advisor.tf.load.model_source import ModelSource


def source(path: str, name: str | None = None) -> ModelSource:
    return ModelSource(
        path=path, name=name, mode=None, batch_size=None, outputs=(), time_limit_s=1.0
    )


@pytest.mark.parametrize(
    ("path", "folder"), [("a/net.py", "net"), ("exported/", "exported"), ("net.keras", "net")]
)
def test_the_output_is_named_after_the_model(path: str, folder: str) -> None:
    assert default_output(source(path)) == Path("advisor-out") / folder


def test_what_did_not_run_here_does_not_replace_what_was_measured() -> None:
    net = source("net.py")
    names = {
        default_output(net).name,
        default_output(net, quick=True, run=False).name,
        default_output(net, run=False).name,
        default_output(net, hardware="2xA100").name,
        default_output(net, hardware="4xA100", run=False).name,
        default_output(net, hardware="2xA100", quick=True).name,
    }
    assert names == {
        "net",
        "net-quick",
        "net-no-run",
        "net-2xA100",
        "net-4xA100",
        "net-2xA100-quick",
    }


def test_two_objects_of_a_file_have_folders_of_their_own() -> None:
    assert default_output(source("net.py", "train_step")).name == "net-train_step"
    assert default_output(source("net.py", "steps.train/../..")).name == "net-steps.train-..-.."


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
    folder = default_output(source("net.py"), hardware=hardware)
    assert folder == Path("advisor-out") / name
