"""`advisor hardware`: all presets, and one of them."""

import cli_answers
import pytest
from command_runs import run_here

from placement_advisor.machine.presets import hardware_figures

WIDTH = 120
GPUS, LINKS = hardware_figures()["devices"], hardware_figures()["links"]


def told(*words):
    return cli_answers.told(run_here("hardware", *words, "--json"), "hardware")


def test_all_gpus_and_links_are_listed_in_text_and_json():
    lines = run_here("hardware").out.splitlines()
    firsts = [line.split(maxsplit=1)[0] for line in lines if line[:1].strip()]
    assert [name for name in firsts if name in GPUS] == list(GPUS)
    assert [name for name in firsts if name in LINKS] == list(LINKS)
    assert max(map(len, lines)) <= WIDTH
    content = told()
    assert [gpu["name"] for gpu in content["devices"]] == list(GPUS)
    assert [link["name"] for link in content["links"]] == list(LINKS)
    assert all(source for gpu in content["devices"] for source in gpu["sources"])


@pytest.mark.parametrize("word", ["V100", "v100-sxm2", "V100-SXM2-16GB"])
def test_a_gpu_goes_by_any_of_its_names(word):
    (gpu,) = told(word)["devices"]
    assert gpu["name"] == "V100"
    assert told(word)["links"] == []


def test_figures_say_where_they_are_from():
    devices = told()["devices"]
    bases = {gpu["name"]: {k["family"]: k["basis"] for k in gpu["kernels"]} for gpu in devices}
    assert (bases["T4"]["linear"], bases["T4"]["conv_by_input"]) == ("fitted", "assumed")
    assert (bases["L4"]["linear"], bases["L4"]["relu"]) == ("assumed", "transferred")
    launches = {(gpu["launch_overhead_ns"], gpu["launch_overhead_basis"]) for gpu in devices}
    assert launches == {(3_000, "assumed")}
    assert "5.7 µs with a K80" in run_here("hardware", "K80").out
    out = run_here("hardware", "rtx3090").out
    assert out.startswith("RTX3090: datasheet RTX3090, chip GA102\n")
    assert "% off  transferred from other chips" in out
    assert "links: PCIe4-staged, PCIe4, PCIe3, NVLink3-GA102 (the first is the default)" in out
    assert "https://github.com/NVIDIA/nccl/issues/1127" in out
    out = run_here("hardware", "NVLink3-GA102").out
    assert "a bridge, which joins 2 devices" in out
    assert "judgement" in out


@pytest.mark.parametrize(
    ("word", "gpus", "links"),
    [
        ("2xv100-nvlink", ["V100"], ["NVLink2"]),
        ("GTX1080Ti+GTX1080-PCIe3", ["GTX1080Ti", "GTX1080"], ["PCIe3"]),
        (
            "8x(16x(8xH100-NVLink4)-8xInfiniBand400)-Ethernet100",
            ["H100"],
            ["NVLink4", "InfiniBand400", "Ethernet100"],
        ),
    ],
)
def test_a_machine_is_shown_by_its_gpus_and_links(word, gpus, links):
    shown = told(word)
    assert {gpu["name"] for gpu in shown["devices"]} == set(gpus)
    assert {link["name"] for link in shown["links"]} == set(links)
    text = run_here("hardware", word).out
    assert text.startswith(f"{gpus[0]}: datasheet ")
    assert f"\n\n{links[-1]}\n\nlatency" in text


def test_what_is_none_is_answered_with_what_there_is():
    said = "hardware '4xA10O': unknown device 'A10O'; there are A10"
    assert said in cli_answers.error_of("hardware", "4xA10O")[0]
    error, *_ = cli_answers.error_of("hardware", "V10")
    assert "no GPU and no link 'V10'; there are V100, " in error
