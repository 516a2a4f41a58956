"""What the command offers: panels, examples, the next command for a folder, completion."""

import shlex

import pytest
import sample_analysis
from cli_answers import apart
from command_runs import LAUNCH, run_here
from typer.main import get_command

from placement_advisor.candidates.families import NAMES
from placement_advisor.cli.app import app
from placement_advisor.report.analysis_folder import write_analysis

COMMANDS = {name: each for name, each in get_command(app).commands.items() if not each.hidden}
HEAVY = {"numpy", "tensorflow", "keras", "networkx", "matplotlib", "numba"}
COMPLETES = f"""
import atexit, sys
atexit.register(lambda: print(*sys.modules.keys() & {HEAVY!r}, file=sys.stderr))
{LAUNCH}
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_panel_and_an_example_that_it_takes(name):
    command = COMMANDS[name]
    assert command.rich_help_panel in ("Start", "Explore", "Machines", "Files")
    label, program, called, *words = shlex.split(command.epilog)
    assert (label, program, called) == ("Example:", "advisor", name)
    assert command.make_context(name, words).params
    assert command.epilog in " ".join(run_here(name, "--help").out.split())


def test_only_what_a_launcher_types_is_hidden():
    assert get_command(app).commands.keys() - COMMANDS == {"worker"}


def next_commands():
    ran = run_here()
    assert ran.code == 0
    assert ran.err == ""
    assert len(ran.out.splitlines()) <= 5
    return [line.partition("  ")[0] for line in ran.out.splitlines()]


def test_alone_it_says_what_to_type_next_in_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert next_commands() == ["advisor analyze TRAIN.py", "advisor doctor", "advisor --help"]
    (tmp_path / "data.py").write_text("import numpy\n")
    (tmp_path / "model.py").write_text("import os\nfrom keras import layers\n")
    (tmp_path / "broken.py").symlink_to("nowhere.py")
    assert next_commands()[0] == "advisor analyze model.py"
    (tmp_path / "train it.py").write_text("import tensorflow as tf\n")
    (tmp_path / "placements.lock.json").touch()
    assert next_commands()[:2] == ["advisor analyze 'train it.py'", "advisor check"]
    analysis = sample_analysis.sample()
    (tmp_path / "advisor-out" / "it").mkdir(parents=True)
    write_analysis(analysis, tmp_path / "advisor-out" / "it")
    rest = ["advisor analyze 'train it.py'", "advisor check", "advisor --help"]
    assert next_commands() == ["advisor show advisor-out/it", *rest]
    script = tmp_path / analysis.model.path
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("")
    run = f"advisor run {analysis.model.path}"
    assert next_commands() == ["advisor show advisor-out/it", run, *rest]
    (tmp_path / "advisor-out" / "it" / "analysis.json").write_text("{")
    assert next_commands() == rest


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("analyze m.py --candidates ", [n for n in NAMES if n not in ("single", "as-written")]),
        ("analyze m.py --candidates batch,towers-f", ["batch,towers-forward-only"]),
        ("analyze m.py --hardware 8xL40", ["8xL40S", "8xL40S-PCIe4", "8xL40S-PCIe3"]),
        ("search g --hardware 2xT", ["2xT4", "2xT4-PCIe3"]),
        ("compare-hardware m.py 2xT4 4xT4-", ["4xT4-PCIe3"]),
        ("explain PA40", ["PA401", "PA402"]),
        ("explain slower", ["slower-step"]),
    ],
)
def test_names_are_completed_without_what_an_analysis_imports(tmp_path, words, expected):
    line = f"advisor {words}"
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    ran = apart(launch=COMPLETES, cwd=tmp_path, _ADVISOR_COMPLETE="complete_bash", **asked)
    assert (ran.code, ran.out.split(), ran.err.split()) == (0, expected, [])
