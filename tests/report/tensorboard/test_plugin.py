from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tab_samples import write_sample
from tensorboard.plugins import base_plugin

from placement_advisor.report.tensorboard import plugin as plugin_module
from placement_advisor.report.tensorboard.plugin import PlacementPlugin

STATIC = Path(plugin_module.__file__).parent / "static"


def plugin(logdir: Path | None) -> PlacementPlugin:
    return PlacementPlugin(base_plugin.TBContext(logdir=None if logdir is None else str(logdir)))


def ask(of: PlacementPlugin, route: str, **query: str) -> tuple[str, dict[str, str], bytes]:
    told: list[tuple[str, dict[str, str]]] = []
    app = of.get_plugin_apps()[route]
    answer = app(
        {"QUERY_STRING": urlencode(query)},
        lambda status, headers: told.append((status, dict(headers))),
    )
    return *told[0], b"".join(answer)


def test_the_tab_is_active_as_soon_as_there_is_an_analysis_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_routes_answer_with_the_analyses_under_the_log_directory(tmp_path: Path) -> None:
    write_sample(tmp_path / "a" / "tensorboard", ["one", "two"])
    tab = plugin(tmp_path)
    status, headers, runs = ask(tab, "/runs")
    assert status == "200 OK"
    assert headers["Content-Type"] == "application/json"
    ((name, running),) = [(run["name"], run["running"]) for run in json.loads(runs)]
    assert (name, running) == ("a", False)
    overview = json.loads(ask(tab, "/overview", run="a")[2])
    assert [each["name"] for each in overview["candidates"]] == ["single", "alternating"]
    details = json.loads(ask(tab, "/details", run="a", candidate="single")[2])
    assert details["lanes"] == ["worker:0", "worker:1"]


def test_every_script_and_style_is_served_and_nothing_else(tmp_path: Path) -> None:
    routes = plugin(tmp_path).get_plugin_apps()
    assert routes.keys() == {
        *(f"/static/{file.name}" for file in STATIC.iterdir()),
        "/runs",
        "/overview",
        "/details",
    }
    _, headers, body = ask(plugin(tmp_path), "/static/index.js")
    assert headers["Content-Type"].startswith("text/javascript")
    assert body == (STATIC / "index.js").read_bytes()


@pytest.mark.parametrize("script", sorted(STATIC.glob("*.js")), ids=lambda path: path.name)
def test_scripts_make_no_markup_and_load_nothing_from_outside(script: Path) -> None:
    makes = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    loads = ("http:", "https:", "//cdn")
    # The name of SVG looks like an address and is none.
    text = script.read_text().replace("'http://www.w3.org/2000/svg'", "")
    assert [word for word in (*makes, *loads) if word in text] == []
