import json
import sys

import sample_analysis
from command_runs import _ROOT
from program_runs import run_program

from placement_advisor.report.analysis_folder import write_analysis

SLOW = ("tensorflow", "keras", "networkx", "matplotlib", "numba")
# One process runs all command lines, from the ones that should import least to most. The fork
# server counts too: it imports TensorFlow.
SCRIPT = f"""
import json, multiprocessing.forkserver, sys
from placement_advisor.cli.app import main

found = {{}}
for line in json.loads(sys.argv[1]):
    sys.argv = ["advisor", *line]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    slow = [name for name in {SLOW!r} if name in sys.modules]
    forked = multiprocessing.forkserver._forkserver._forkserver_pid is not None
    found[" ".join(line)] = [code, slow, forked]
json.dump(found, sys.stderr)
"""
# What only whoever makes an analysis needs, and not who shows one.
TO_ANALYSE = {
    "google.protobuf",
    "numpy",
    "placement_advisor.graph.op_graph",
    "placement_advisor.profile",
    "placement_advisor.simulator",
    "placement_advisor.solvers",
    "placement_advisor.testbed",
}
SHOW = """
import sys
from placement_advisor.cli.app import main

try:
    main()
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def said(folder, script, *words):
    done = run_program(
        sys.executable, "-c", script, *words, cwd=folder, env={"PYTHONPATH": str(_ROOT)}
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_help_and_usage_errors_import_nothing_slow(tmp_path):
    (tmp_path / "model.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    settings = '[tool.advisor]\nhardware = "HARDWARE"\n[[tool.advisor.models]]\npath = "model.py"\n'
    for name, hardware, lock in (("lock", "2xT4", "<<<<<<< HEAD\n"), ("hardware", "2xT5", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.toml").write_text(settings.replace("HARDWARE", hardware))
        (tmp_path / name / "placements.lock.json").write_text(lock)
    (tmp_path / "analysed").mkdir()
    write_analysis(sample_analysis.sample(), tmp_path / "analysed")
    lines = {
        "--help": 0,
        "--version": 0,
        "analyze --help": 0,
        "trace --help": 0,
        "graph --help": 0,
        "calibrate --help": 0,
        "doctor --help": 0,
        "hardware": 0,
        "hardware V100 --json": 0,
        "hardware V1000": 2,
        "doctor --hosts a:1": 2,
        "doctor --hosts tf-config": 2,
        "worker --help": 0,
        "worker": 2,
        "show --help": 0,
        "show nowhere": 2,
        "show analysed": 0,
        "diff analysed analysed": 0,
        "diff analysed .": 0,
        "diff analysed nowhere": 2,
        "view --help": 0,
        "view nowhere": 2,
        "view .": 2,
        "report --help": 0,
        "report nowhere": 2,
        "trace nowhere.py": 2,
        "trace model.py -o nowhere/m.graph.json.gz": 2,
        "graph nowhere.graph.json.gz": 2,
        "graph notes.txt --depth 1": 2,
        "graph notes.txt --format mermaid": 2,
        "graph notes.txt --format graphml": 2,
        "search --help": 0,
        "search nowhere.json": 2,
        "search notes.txt --contiguous": 2,
        "check --help": 0,
        "check --format nonsense": 2,
        "check --jobs 0": 2,
        "check": 2,
        "check --config nowhere.toml": 2,
        "check --config notes.txt": 2,
        "check --config model.py --format json=model.py": 2,
        "check --config lock/settings.toml --format text=lock/placements.lock.json": 2,
        "check --config lock/settings.toml": 2,
        "check --config lock/settings.toml --update": 2,
        "check --config hardware/settings.toml": 2,
        "check --config hardware/settings.toml other.py": 2,
        "check --config hardware/settings.toml --measure --update": 2,
        "calibrate --devices 1": 2,
        "calibrate --testbed none": 2,
        "analyze model.py --devices 1": 2,
        "analyze nowhere.py": 2,
        "analyze notes.txt": 2,
        "analyze model.py --candidates none": 2,
        "analyze model.py --testbed gpus --devices 99": 2,
        "analyze model.py -o notes.txt/sub": 2,
        "analyze model.py -o .": 2,
    }
    told = said(tmp_path, SCRIPT, json.dumps([line.split() for line in lines]))
    found = json.loads(told.splitlines()[-1])
    assert found == {line: [code, [], False] for line, code in lines.items()}


def test_an_analysis_is_shown_without_what_makes_one(tmp_path):
    write_analysis(sample_analysis.sample(), tmp_path)
    assert not TO_ANALYSE & set(said(tmp_path, SHOW, "show", ".").split())
