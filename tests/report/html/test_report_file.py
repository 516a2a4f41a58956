import base64
import gzip
import hashlib
import json
import re
import tempfile
from pathlib import Path

import pytest
from command_runs import run_here
from damaged_files import LIMIT_S, Reader, examined
from damaged_files import MOST_BYTES as MOST_GROWN_BYTES
from report_samples import write_sample

from placement_advisor.files.output import DETAILS, LOG_FOLDER, OVERVIEW
from placement_advisor.report.html_file import bundle, report_html
from placement_advisor.report.tensorboard.tab_data import compact, read_details, read_overview

MOST_BYTES = 2_000_000
NAME = "</script><!--<script>alert(1)</script>'\"&\u202e"


def written(folder, layers, name="stack", splits=1):
    write_sample(folder / LOG_FOLDER, layers, name=name, splits=splits)
    return folder


def answers(page):
    """Return what the scripts of a page are told."""
    (found,) = re.findall(r'<script type="application/json" id="answers">(.*)</script>', page)
    return json.loads(found)


def unpacked(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_the_file_holds_what_tensorboard_would_answer_and_is_the_same_again(tmp_path):
    one, other = (report_html(written(tmp_path / name, ["a", "b"])) for name in ("one", "other"))
    assert one == other
    told, log = answers(one), tmp_path / "one" / LOG_FOLDER
    assert unpacked(told["overview"]) == json.loads((log / OVERVIEW).read_text())
    assert [name for name, _ in told["details"]] == ["alternating", "single"]
    for name, details in told["details"]:
        assert unpacked(details) == json.loads((log / DETAILS / f"{name}.json").read_text())


def test_the_browser_may_load_nothing_and_run_nothing_but_what_stands_in_it(tmp_path):
    page = report_html(written(tmp_path, ["a", "b"]))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    sources = []
    for element in ("script", "style"):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        sources.append(f"{element}-src 'sha256-{digest}'")
    rules = ["default-src 'none'", *sources, "base-uri 'none'", "form-action 'none'"]
    assert policy == "; ".join(rules)
    assert not re.search(r"\b(?:src|href)=", page)


def test_names_end_no_element(tmp_path):
    page = report_html(written(tmp_path, [NAME, "b"], name=NAME))
    assert len(re.findall("</script>", page)) == 2
    assert "<!--" not in page
    assert "\u202e" not in page
    assert answers(page)["runs"] == [{"name": NAME, "changed": "", "running": False}]


def test_a_thousand_layers_and_twelve_candidates_stay_small_and_whole(tmp_path):
    layers = [f"encoder/block_{i // 10}/dense_{i}" for i in range(1_000)]
    page = report_html(written(tmp_path, layers, splits=11))
    assert len(page.encode()) < MOST_BYTES
    details = answers(page)["details"]
    assert len(details) == 12
    assert not any("left_out" in unpacked(each) for _, each in details)


def test_of_what_does_not_fit_the_candidate_of_the_verdict_stays_whole(tmp_path, monkeypatch):
    written(tmp_path, [f"layer_{i}" for i in range(50)], splits=3)
    told = answers(report_html(tmp_path))
    whole = dict(told["details"])
    room = len(told["overview"]) + len(whole["alternating"]) + 10
    monkeypatch.setattr("placement_advisor.report.html_file._MOST_PACKED_CHARS", room)
    first, *others = answers(report_html(tmp_path))["details"]
    assert first == ["alternating", whole["alternating"]]
    for name, packed in others:
        shown, all_of_it = unpacked(packed), unpacked(whole[name])
        assert shown["left_out"].startswith("Left out, to keep this file small")
        assert (shown["timelines"], shown["tensors"]) == ([], [{"text": shown["left_out"]}])
        assert shown["layers"] == all_of_it["layers"]
        assert shown["copies"] == all_of_it["copies"]


def test_the_command_makes_it_anew_in_the_folder_or_where_it_is_told_to(tmp_path):
    written(tmp_path / "mine", ["a", "b"])
    ran = run_here("report", str(tmp_path / "mine"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{tmp_path}/mine/report.html shows {tmp_path}/mine in any browser\n"
    made = (tmp_path / "mine" / "report.html").read_text()
    assert made == report_html(tmp_path / "mine")
    assert run_here("report", str(tmp_path / "mine"), "-o", str(tmp_path / "x.html")).code == 0
    assert (tmp_path / "x.html").read_text() == made


def test_a_folder_without_an_analysis_and_a_damaged_one_are_told_in_one_message(tmp_path):
    ran = run_here("report", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"advisor: error: {tmp_path / LOG_FOLDER / OVERVIEW}: cannot be read: "
        "No such file or directory\n"
        "advisor: hint: give the folder of an analysis, as `advisor analyze MODEL` leaves it\n"
    )
    written(tmp_path, ["a", "b"])
    (tmp_path / LOG_FOLDER / DETAILS / "single.json").unlink()
    ran = run_here("report", str(tmp_path))
    assert ran.code == 2
    assert "single.json: cannot be read: No such file or directory\n" in ran.err
    assert not (tmp_path / "report.html").exists()


ONE = """import { HEAD, twice } from './other.js';

export const shown = () => twice(HEAD);
"""
OTHER = """export const HEAD = 1;
const own = 2;

export async function later() {}
export function twice(of) {
  return own * of;
}
"""


def test_each_module_is_a_function_and_those_that_it_imports_stand_above_it():
    assert bundle({"one.js": ONE, "other.js": OTHER, "unused.js": "x"}, "one.js") == (
        """'use strict';
const modules = {};
modules['other.js'] = (() => {
const HEAD = 1;
const own = 2;

async function later() {}
function twice(of) {
  return own * of;
}
return { HEAD, later, twice };
})();
modules['one.js'] = (() => {
const { HEAD, twice } = modules['other.js'];

const shown = () => twice(HEAD);
return { shown };
})();
"""
    )


@pytest.mark.parametrize(
    "line",
    [
        "import all from './other.js';",
        "import { HEAD } from 'elsewhere';",
        "import { HEAD as TOP } from './other.js';",
        "export default 1;",
        "export { HEAD };",
        "const here = import.meta.url;",
        "const other = await import('./other.js');",
    ],
)
def test_what_it_does_not_know_is_refused(line):
    with pytest.raises(ValueError, match=r"one\.js: cannot be bundled"):
        bundle({"one.js": f"{line}\n", "other.js": OTHER}, "one.js")


def readers():
    """Return what reads each file of the tab, and makes JSON of it again."""
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder), [f"layer_{i}" for i in range(6)])
        file = Path(folder) / OVERVIEW
        overview = read_overview(file)
        of_all = file.read_bytes()
        of_one = (Path(folder) / DETAILS / "alternating.json").read_bytes()
    return {
        "overview": Reader(
            suffix=".json", sound=of_all, read=lambda path: compact(read_overview(path))
        ),
        "details": Reader(
            suffix=".json", sound=of_one, read=lambda path: compact(read_details(path, overview))
        ),
    }


READERS = readers()


@pytest.mark.parametrize("kind", READERS)
def test_damaged_files_of_the_tab_are_refused_in_one_message_or_read(kind):
    found = examined(READERS[kind], range(300))
    assert found["refused"] > 100
    assert found["read"] > 0
    assert found["grown_bytes"] < MOST_GROWN_BYTES
    assert found["slowest_s"] < LIMIT_S
