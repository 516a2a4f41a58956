import json
import os
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from urllib.parse import urlencode

import pytest
from report_samples import write_sample
from tensorboard.plugins import base_plugin

from placement_advisor.files.output import DETAILS, OVERVIEW, output_folder
from placement_advisor.report.find_analysis import find_runs
from placement_advisor.report.tensorboard import plugin as plugin_module
from placement_advisor.report.tensorboard.plugin import PlacementPlugin
from placement_advisor.report.tensorboard.server import for_this_machine

STATIC = Path(plugin_module.__file__).parent / "static"


def plugin(logdir):
    return PlacementPlugin(base_plugin.TBContext(logdir=None if logdir is None else str(logdir)))


def ask(of, route, **query):
    told = []
    app, asked = of.get_plugin_apps()[route], {"QUERY_STRING": urlencode(query)}
    answer = app(asked, lambda status, headers: told.append((status, dict(headers))))
    return *told[0], b"".join(answer)


def test_the_tab_is_active_as_soon_as_there_is_an_analysis_and_no_longer(tmp_path, monkeypatch):
    assert not plugin(None).is_active()
    tab = plugin(tmp_path)
    assert not tab.is_active()
    write_sample(tmp_path / "a", ["one", "two"])
    assert tab.is_active()
    (tmp_path / "a").rename(tmp_path / "b")
    assert tab.is_active()
    with monkeypatch.context() as patched:  # An active one is not looked for again.
        patched.setattr(plugin_module, "find_runs", None)
        assert tab.is_active()
    (tmp_path / "b" / "plugins").rename(tmp_path / "gone")
    assert not tab.is_active()


def test_routes_answer_with_analyses_scripts_and_styles_and_nothing_else(tmp_path):
    write_sample(tmp_path / "a" / "tensorboard", ["one", "two"])
    tab = plugin(tmp_path)
    status, headers, runs = ask(tab, "/runs")
    assert (status, headers["Content-Type"]) == ("200 OK", "application/json")
    assert [(run["name"], run["running"]) for run in json.loads(runs)] == [("a", False)]
    overview = json.loads(ask(tab, "/overview", run="a")[2])
    assert [each["name"] for each in overview["candidates"]] == ["single", "alternating"]
    details = json.loads(ask(tab, "/details", run="a", candidate="single")[2])
    assert details["lanes"] == ["worker:0", "worker:1"]
    scripts_and_styles = {f"/static/{file.name}" for file in STATIC.iterdir()}
    assert tab.get_plugin_apps().keys() == scripts_and_styles | {"/runs", "/overview", "/details"}
    _, headers, body = ask(tab, "/static/index.js")
    assert headers["Content-Type"].startswith("text/javascript")
    assert body == (STATIC / "index.js").read_bytes()


@pytest.mark.parametrize("script", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_scripts_make_no_markup_and_load_nothing_from_outside(script):
    makes = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    loads = ("http:", "https:", "//cdn")
    # The name of SVG looks like an address and is none.
    text = script.read_text().replace("'http://www.w3.org/2000/svg'", "")
    assert [word for word in (*makes, *loads) if word in text] == []


_KILLED = """
import os, sys
from pathlib import Path
from placement_advisor.files.output import output_folder
with output_folder(Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""


def write(folder, text="{}"):
    (folder / DETAILS).mkdir(parents=True)
    (folder / OVERVIEW).write_text(text)
    (folder / DETAILS / "towers.json").write_text("of towers")
    return folder


def names(logdir):
    return [run.name for run in find_runs(logdir)]


def test_analyses_are_found_under_a_log_directory_and_named_by_their_folders(tmp_path):
    write(tmp_path / "wide" / "tensorboard")
    write(tmp_path / "group" / "deep" / "tensorboard")
    (tmp_path / "empty").mkdir()
    assert names(tmp_path) == ["wide", "group/deep"]


def test_the_log_directory_may_be_that_of_one_analysis(tmp_path):
    write(tmp_path / "mine" / "tensorboard", '{"doing": null}')
    for logdir in (tmp_path / "mine", tmp_path / "mine" / "tensorboard"):
        (run,) = find_runs(logdir)
        assert (run.name, run.overview()) == ("mine", b'{"doing": null}')
        assert run.details("towers") == b"of towers"
        assert run.changed_ns > 0
    write(tmp_path / "moved")
    assert names(tmp_path / "moved") == ["moved"]


def test_only_complete_analyses_and_those_of_living_commands_are_found(tmp_path):
    with output_folder(tmp_path / "mine") as staging:
        write(staging / "tensorboard")
        (staging / "analysis.json").write_text("{}")
        (running,) = find_runs(tmp_path)
        assert (running.name, running.is_running) == ("mine (running)", True)
    (complete,) = find_runs(tmp_path)
    assert (complete.name, complete.is_running) == ("mine", False)
    assert (running.overview(), running.changed_ns) == (None, 0)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "killed")], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "killed").iterdir()
    write(left / "tensorboard")
    assert names(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    "candidate",
    ["single", "", ".", "../analysis", "../../../../secret", "/etc/hostname", "a\0b", "x" * 5_000],
)
def test_no_name_of_a_candidate_leads_elsewhere(tmp_path, candidate):
    (tmp_path / "secret.json").write_text("secret")
    write(tmp_path / "log")
    (run,) = find_runs(tmp_path / "log")
    assert run.details(candidate) is None


def test_links_out_of_the_log_directory_are_not_followed(tmp_path):
    elsewhere = write(tmp_path / "elsewhere")
    log = tmp_path / "log"
    (log / "plugins").mkdir(parents=True)
    (log / "run").symlink_to(elsewhere)
    (log / "plugins" / "placement").symlink_to(elsewhere / "plugins" / "placement")
    assert names(log) == []

    inside = write(log / "other")
    (inside / DETAILS / "out.json").symlink_to(elsewhere / OVERVIEW)
    (run,) = find_runs(log)
    assert run.details("out") is None


def test_files_larger_than_any_of_an_analysis_and_pipes_are_not_served(tmp_path):
    folder = write(tmp_path)
    (run,) = find_runs(tmp_path)
    for name in (OVERVIEW, f"{DETAILS}/towers.json"):
        os.truncate(folder / name, 3_000_000_000)  # Of holes alone: it takes no disk.
    os.mkfifo(folder / DETAILS / "pipe.json")
    tracemalloc.start()
    try:
        assert [run.overview(), run.details("towers"), run.details("pipe")] == [None] * 3
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 300_000_000


def test_a_log_directory_of_very_many_folders_is_given_up_on(tmp_path):
    for i in range(50):
        for j in range(50):
            (tmp_path / f"{i:02}" / f"{j:02}").mkdir(parents=True)
    write(tmp_path / "99" / "last" / "tensorboard")
    assert names(tmp_path) == []
    write(tmp_path / "00" / "tensorboard")
    assert names(tmp_path) == ["00"]


def status(asked, host="127.0.0.1"):
    said = []

    def answer(environ, start):
        said.append("200 OK")
        return []

    environ = {} if asked is None else {"HTTP_HOST": asked}
    for_this_machine(answer, host)(environ, lambda line, headers: said.append(line))
    (line,) = said
    return line


ANSWERED = [
    *("localhost", "LOCALHOST:6006", "127.0.0.1:6006", "192.0.2.7", "[::1]:6006", "[2001:db8::7]")
]
REFUSED = [
    *(None, "", "rebound.example", "rebound.example:6006", "localhost.rebound.example", "::1"),
    *("127.0.0.1.rebound.example", "user@rebound.example", "[rebound.example]", "[::1", "0x7f.1"),
]


def test_addresses_localhost_and_the_name_that_was_given_are_answered_and_no_others():
    assert {name: status(name) for name in ANSWERED} == dict.fromkeys(ANSWERED, "200 OK")
    assert {name: status(name) for name in REFUSED} == dict.fromkeys(REFUSED, "403 Forbidden")
    assert status("Station.example:6006", "station.EXAMPLE") == "200 OK"
    assert status("other.example:6006", "station.example") == "403 Forbidden"
