"""Files of the tab that anybody may have written: read as they are, or refused with their place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tab_samples import write_sample

from placement_advisor.errors import AdvisorError
from placement_advisor.files.log_files import DETAILS, OVERVIEW
from placement_advisor.report.html.tab_files import read_details, read_overview

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Document = dict[str, Any]


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    write_sample(tmp_path, ["a", "b", "c", "d", "e"])
    return tmp_path


def changed(path: Path, change: Callable[[Document], object]) -> Path:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def test_what_an_analysis_wrote_is_read_as_it_is(logdir: Path) -> None:
    written = json.loads((logdir / OVERVIEW).read_text())
    overview = read_overview(logdir / OVERVIEW)
    assert set(written) - set(overview) == {"schema_version"}
    again = json.loads(json.dumps(overview))
    for name in ("how", "break_even", "graph", "candidates", "devices", "hosts", "warnings"):
        assert again[name] == written[name]
    path = logdir / DETAILS / "alternating.json"
    details = read_details(path, overview)
    assert json.loads(json.dumps(details)) == json.loads(path.read_text())


def test_what_an_older_advisor_did_not_write_is_null(logdir: Path) -> None:
    def as_before(overview: Document) -> None:
        for name in ("how", "break_even", "scaling", "as_is", "input", "hosts", "expected_errors"):
            del overview[name]
        del overview["left_out"]
        del overview["candidates"][0]["peak_memory"]
        del overview["candidates"][0]["predicted_after_runs"]

    overview = read_overview(changed(logdir / OVERVIEW, as_before))
    assert (overview["how"], overview["break_even"], overview["scaling"]) == (None, None, None)
    assert (overview["as_is"], overview["input"], overview["hosts"]) == (None, None, None)
    assert (overview["expected_errors"], overview["left_out"]) == (None, None)
    assert overview["candidates"][0]["peak_memory"] is None
    assert overview["candidates"][0]["predicted_after_runs"] is None
    path = logdir / DETAILS / "single.json"
    details = read_details(changed(path, lambda details: details.pop("activities")), overview)
    assert details["activities"] is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda o: o.update(schema_version=2), "schema_version: 2 is newer than the 1"),
        (lambda o: o.pop("model"), "model: None is not an object"),
        (lambda o: o["model"].update(name=7), "model.name: 7 is not a string"),
        (lambda o: o["model"].update(ops=-1), "model.ops: -1 is not a whole number"),
        (lambda o: o["candidates"][1].update(name="../a"), r"candidates\[1\].name: .* no name of"),
        (lambda o: o["candidates"][1].update(name="single"), "candidates: two of the same name"),
        (lambda o: o["graph"]["layers"][2].update(at=[0]), r"layers\[2\].at: \[0\] is not two"),
        (lambda o: o["graph"].update(box=[1, 10**400]), r"box\[1\]: 1000.* is not a number"),
        (lambda o: o["graph"]["flows"][0].update(target=5), "graph.flows.target: 5 is none of 5"),
        (lambda o: o["graph"]["flows"][0].update(route=[[0, 0]]), "a way without two ends"),
        (lambda o: o["findings"][0].update(hypothetical=0), "neither true nor false"),
        (lambda o: o.update(as_is={"name": "as-is"}), "as_is.step_ns: None is not a whole number"),
        (lambda o: o["candidates"][0].update(peak_memory={}), r"peak_memory: \{\} is not a list"),
    ],
)
def test_an_overview_that_cannot_be_shown_is_refused_with_its_place(
    logdir: Path, change: Callable[[Document], object], told: str
) -> None:
    path = changed(logdir / OVERVIEW, change)
    with pytest.raises(AdvisorError, match=told) as refused:
        read_overview(path)
    assert refused.value.message.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["layers"].pop(), "layers: 4 of 5 layers"),
        (lambda d: d["cuts"].append([9, None]), "cuts: 9 is none of"),
        (lambda d: d["timelines"]["simulated"]["spans"].append([7, 0, 0, 1]), "7 is none of"),
        (lambda d: d["timelines"]["measured"]["spans"].append([0, 99, 0, 1]), "99 is none of"),
        (lambda d: d["timelines"]["measured"]["spans"].append([0, 0, 1]), "is not a lane, a name"),
        (lambda d: d["timelines"]["measured"]["spans"].append([0, 0, 1, True]), "not a lane"),
        (lambda d: d.pop("copies"), "copies: None is not an object"),
        (lambda d: d["activities"].update(rows=[["a"]]), r"activities.rows\[0\]: .* not an object"),
    ],
)
def test_details_that_do_not_fit_the_overview_are_refused_with_their_place(
    logdir: Path, change: Callable[[Document], object], told: str
) -> None:
    path = changed(logdir / DETAILS / "alternating.json", change)
    with pytest.raises(AdvisorError, match=told) as refused:
        read_details(path, read_overview(logdir / OVERVIEW))
    assert refused.value.message.startswith(f"{path}: ")
