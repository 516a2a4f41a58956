import json
import re
import sys

import sample_analysis
from command_runs import _ROOT
from program_runs import run_program

from placement_advisor.report.analysis_folder import write_analysis

SLOW = ("tensorflow", "keras", "networkx", "matplotlib", "numba")
# One process runs all command lines. The fork server counts too: it imports TensorFlow.
SCRIPT = """
import json, multiprocessing.forkserver, sys
from placement_advisor.cli.app import main

found = {}
lines, slow = map(json.loads, sys.argv[1:])
for line in lines:
    sys.argv = ["advisor", *line.split()]
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    forked = multiprocessing.forkserver._forkserver._forkserver_pid is not None
    found[line] = [code, [name for name in slow if name in sys.modules], forked]
json.dump(found, sys.stderr)
"""
ANSWERED = """
--help; --version; analyze --help; trace --help; graph --help; calibrate --help; doctor --help
hardware; hardware V100 --json; worker --help; show --help; show analysed; diff analysed analysed
diff analysed .; view --help; report --help; search --help; check --help
"""
REFUSED = """
hardware V1000; doctor --hosts a:1; doctor --hosts tf-config; worker; show nowhere
diff analysed nowhere; view nowhere; view .; report nowhere
trace nowhere.py; trace model.py -o nowhere/m.graph.json.gz; graph nowhere.graph.json.gz
graph notes.txt --depth 1; graph notes.txt --format mermaid; graph notes.txt --format graphml
search nowhere.json; search notes.txt --contiguous; check --format nonsense; check --jobs 0; check
check --config nowhere.toml; check --config notes.txt
check --config model.py --format json=model.py
check --config lock/settings.toml --format text=lock/placements.lock.json
check --config lock/settings.toml; check --config lock/settings.toml --update
check --config hardware/settings.toml; check --config hardware/settings.toml other.py
check --config hardware/settings.toml --measure --update
calibrate --devices 1; calibrate --testbed none; analyze model.py --devices 1
analyze nowhere.py; analyze notes.txt; analyze model.py --candidates none
analyze model.py --testbed gpus --devices 99; analyze model.py -o notes.txt/sub
analyze model.py -o .
"""
# What only whoever makes an analysis needs, and not who shows one.
TO_ANALYSE = (
    *("google.protobuf", "numpy", "placement_advisor.graph.op_graph", "placement_advisor.profile"),
    *(f"placement_advisor.{name}" for name in ("simulator", "solvers", "testbed")),
)


def found(folder, lines, slow):
    """Return for each command line its exit code, what was slow, and whether there is a server."""
    words = (json.dumps([*lines]), json.dumps(slow))
    env = {"PYTHONPATH": str(_ROOT)}
    done = run_program(sys.executable, "-c", SCRIPT, *words, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


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
    texts = ((0, ANSWERED), (2, REFUSED))
    lines = {line: code for code, text in texts for line in re.split("; |\n", text.strip())}
    expected = {line: [code, [], False] for line, code in lines.items()}
    assert found(tmp_path, lines, SLOW) == expected


def test_an_analysis_is_shown_without_what_makes_one(tmp_path):
    write_analysis(sample_analysis.sample(), tmp_path)
    assert found(tmp_path, ["show ."], TO_ANALYSE) == {"show .": [0, [], False]}
