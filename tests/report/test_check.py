"""A check as text, Markdown, GitHub's workflow commands and SARIF: golden, cut, of any names.

Markdown is read back by a parser, commands by the rules of GitHub's runner, SARIF by its schema.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest
import sample_check
from golden_files import golden_text
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from record_cases import cut
from sample_check import BEFORE, BUDGET, COPIES, DIFFERENCE, check, failed, inconclusive, passed

from placement_advisor.check.problem_codes import Place, Problem, ProblemCode
from placement_advisor.report.check_report import (
    MAX_ANNOTATIONS,
    MAX_BYTES,
    check_as_github,
    check_as_markdown,
    check_as_sarif,
    check_as_text,
)

SARIF = json.loads((Path(__file__).parent / "sarif.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft7Validator(SARIF, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("check_sample.txt", check_as_text),
        ("check_sample_verbose.txt", partial(check_as_text, verbose=True)),
        ("check_sample.md", check_as_markdown),
        ("check_sample.commands", check_as_github),
    ],
)
def test_a_check_of_each_status_is_the_golden_one(name, written):
    assert written(sample_check.sample()) == golden_text(name)


def test_strict_fails_and_only_what_the_lock_file_holds_can_be_accepted():
    result = check(inconclusive(), strict=True)
    told = "\n1 model: 1 inconclusive (--strict: inconclusive fails)\n"
    assert check_as_text(result).endswith(told)
    assert check_as_github(result).startswith("::error ")
    assert [found["level"] for found in run(result)["results"]] == ["error"]
    copies = check_as_text(check(failed(problems=(COPIES,))))
    assert copies.count("to accept:") == 1
    assert "to accept: advisor check --update, and commit placements.lock.json\n" in copies
    assert "to accept" not in check_as_text(check(failed(problems=(BUDGET, BUDGET))))
    both = check_as_text(check(failed(problems=(COPIES, BUDGET, BUDGET))))
    assert "placements.lock.json; it does not accept over-budget\n" in both


def test_however_much_failed_it_is_a_screen_unless_all_is_asked_for():
    result = check(failed(problems=(sample_check.LEFT, COPIES, BUDGET, *[COPIES] * 9)))
    lines = check_as_text(result).splitlines()
    assert len(lines) == 30
    assert lines[3] == f"  PA101: {sample_check.LEFT.what}"
    shown, (cut, accept) = lines[3:-5], lines[-5:-3]
    whole = check_as_text(result, verbose=True).splitlines()[3:]
    assert whole[: len(shown)] == shown
    left = whole.index("") - len(shown)
    assert cut == f"  and {left} more lines: advisor check --verbose"
    assert accept.startswith("  to accept: advisor check --update")


def test_of_what_is_not_locked_or_of_other_versions_nothing_is_compared():
    problem = Problem(code=ProblemCode.NOT_LOCKED, what="it is new", action="lock it")
    new = failed(problems=(problem,), notes=(), before=None, difference=None)
    lines = check_as_text(check(new), verbose=True).splitlines()
    assert lines[6:9] == [
        "",
        "                                    locked      now  change",
        "  step (simulated)                       –  11.0 ms     new",
    ]
    other = replace(sample_check.AFTER, tensorflow="2.22.0")
    lines = check_as_text(check(failed(after=other)), verbose=True).splitlines()
    rows = {line[:19].strip(): line.split()[-5:] for line in lines}
    assert rows["step (simulated)"] == ["ms", "11.0", "ms", "not", "comparable"]
    assert rows["copies per step"] == ["4", "8", "+4", "(+100.0", "%)"]
    same = failed(problems=(BUDGET,), after=BEFORE, difference=None)
    assert "locked" not in check_as_text(check(same), verbose=True)


def test_devices_that_traded_places_are_compared_by_their_new_names():
    seven, nine = {"variables": 7}, {"variables": 9}
    now = {"GPU:0": nine, "GPU:1": seven}
    before = replace(BEFORE, memory_bytes={"GPU:0": seven, "GPU:1": nine})
    traded = replace(DIFFERENCE, before=replace(BEFORE, memory_bytes=now))
    after = replace(sample_check.AFTER, memory_bytes=now)
    result = failed(before=before, after=after, difference=traded)
    text = check_as_text(check(result), verbose=True)
    rows = [line.split()[-1] for line in text.splitlines() if "peak memory of" in line]
    assert rows == ["same", "same"]


@pytest.mark.parametrize(
    ("count", "last"), [(8, None), (9, "1 more tensor"), (100, "92 more tensors")]
)
def test_of_many_changes_the_first_are_shown(count, last):
    cuts = tuple(cut(f"t{i}", 8) for i in range(count))
    many = replace(DIFFERENCE, cuts_added=cuts)
    text = check_as_text(check(failed(difference=many)), verbose=True)
    lines = [line.strip() for line in text.splitlines()]
    assert len([line for line in lines if line.startswith("+ tensor t")]) == 8
    told = [f"+ and {last}"] if last else []
    assert [line for line in lines if line.startswith("+ and")] == told


@given(sample_check.hostile_names, st.booleans())
def test_no_name_adds_a_line_or_drives_a_terminal_or_a_log(name, verbose):
    lines = check_as_text(sample_check.hostile(name), verbose=verbose).splitlines()
    tame = check_as_text(sample_check.hostile("x"), verbose=verbose)
    assert len(lines) == len(tame.splitlines())
    assert all(line.isprintable() and "##" not in line for line in lines)
    assert not any(line.lstrip().startswith("::") for line in lines)


def test_a_page_is_cut_as_a_whole_folds_what_passed_and_mentions_nobody():
    many = check(*(failed(model=f"models/{number}.py") for number in range(2_000)))
    page = check_as_markdown(many)
    assert MAX_BYTES * 0.95 < len(page.encode()) <= MAX_BYTES < 65_536  # GitHub's limit.
    assert page.startswith("## advisor check: 2000 models: 2000 failed\n")
    assert page.count("<details>") == page.count("</details>") > 10
    rest = "`advisor check --verbose` prints the rest."
    assert page.endswith(f"\n**Cut here**: the page may have 65000 bytes. {rest}\n")
    shown, _, folded = check_as_markdown(check(passed())).partition("<details>")
    assert shown == "## advisor check: 1 model: 1 passed\n\n"
    assert "| PASSED | models/deepconn.py | towers |" in folded
    long = check(failed(model="ä" * MAX_BYTES))
    assert check_as_markdown(long, max_bytes=500).splitlines() == [
        "## advisor check: 1 model: 1 failed",
        "",
        f"**Cut here**: the page may have 500 bytes. {rest}",
    ]
    whole = check_as_markdown(check(passed()))
    assert check_as_markdown(check(passed()), max_bytes=len(whole.encode())) == whole
    page = check_as_markdown(check(passed("@team/model.py", ["see @you"])))
    assert page.count("@") == page.count("@&#8203;") == 3


def shape(tokens):
    """Return what a page is made of, without the text in it."""
    for token in tokens:
        if token.type not in ("text", "fence"):
            yield token.type, token.content if "html" in token.type else ""
        yield from shape(token.children or ())


@given(sample_check.hostile_names)
def test_no_name_changes_what_the_page_is_made_of(name):
    parser = MarkdownIt("commonmark").enable("table")
    # A name of some hundred signs, each of several bytes, would leave parts out.
    page, tame = (
        check_as_markdown(sample_check.hostile(each), max_bytes=1 << 24) for each in (name, "x")
    )
    assert list(shape(parser.parse(page))) == list(shape(parser.parse(tame)))
    lines = page.split("\n")
    assert len(lines) == len(tame.split("\n"))
    assert all(line.isprintable() and "##[" not in line for line in lines)


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    data: str


def _unescaped(text, more=()):
    for escaped, plain in (("%0D", "\r"), ("%0A", "\n"), *more, ("%25", "%")):
        text = text.replace(escaped, plain)
    return text


def read(line):
    """Read a line by the rules of `ActionCommand.TryParseV2` of actions/runner."""
    assert line.startswith("::")
    head, data = line[2:].split("::", 1)
    name, _, properties = head.partition(" ")
    pairs = (pair.split("=", 1) for pair in properties.split(",") if pair)
    more = (("%3A", ":"), ("%2C", ","))
    return Command(name, {key: _unescaped(value, more) for key, value in pairs}, _unescaped(data))


def commands(text):
    return [read(line) for line in text.splitlines()]


def test_commands_are_escaped_ten_at_most_and_the_last_says_how_many_there_are():
    model = failed(model="a,b:c%", place=Place("p,q.toml", 3), problems=(), notes=("5 %\nmore",))
    assert check_as_github(check(model)) == (
        "::error file=p%2Cq.toml,line=3,title=a%2Cb%3Ac%25%3A failed::5 %25 more%0A"
        "where: p,q.toml:3\n"
    )
    ten = commands(check_as_github(check(*[failed(problems=(COPIES,))] * 10)))
    assert [command.name for command in ten] == ["error"] * 10
    result = check(*[sample_check.could_not_run()] * 8, *[passed(notes=["a"])] * 5)
    eight = commands(check_as_github(result))
    assert [command.name for command in eight] == ["error"] * 8 + ["notice"] * 2
    found = commands(check_as_github(check(*[inconclusive()] * 2, *[failed()] * 5)))
    assert len(found) == MAX_ANNOTATIONS
    assert found[-1] == Command(
        "error", {"title": "advisor check"}, "3 more problems: advisor check --verbose prints all"
    )


@given(sample_check.hostile_names)
def test_no_name_adds_a_command_or_a_property(name):
    text = check_as_github(sample_check.hostile(name))
    assert "##" not in text
    found = commands(text)
    tame = commands(check_as_github(sample_check.hostile("x")))
    assert [command.name for command in found] == [command.name for command in tame]
    for command, expected in zip(found, tame, strict=True):
        assert list(command.properties) == ["file", "line", "title"]
        assert command.data.count("\n") == expected.data.count("\n")
        assert all(line.isprintable() for line in command.data.split("\n"))


def run(result):
    content = check_as_sarif(result)
    VALIDATOR.validate(content)
    (only,) = content["runs"]
    return only


def fingerprints(result):
    return [found["partialFingerprints"]["advisorCheck/v1"] for found in run(result)["results"]]


def test_problems_are_results_at_their_lines_and_there_is_a_rule_for_every_code():
    content = run(sample_check.sample())
    driver = content["tool"]["driver"]
    rules = [rule["id"] for rule in driver.pop("rules")]
    assert rules == [*ProblemCode, "could-not-run", "inconclusive"]
    for found in content["results"]:
        assert rules[found["ruleIndex"]] == found["ruleId"]
    del driver["version"]
    assert content == json.loads(golden_text("check_sample.sarif"))


def location(found):
    place = found["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uriBaseId"] == "%SRCROOT%"
    return str(place["uri"])


def test_results_have_a_lasting_fingerprint_and_a_uri_from_the_root_of_the_repository():
    moved = replace(COPIES, what="+9 copies per step (4 -> 13)", place=Place("b.py", 7))
    first = fingerprints(check(failed(problems=(COPIES, BUDGET, BUDGET))))
    assert len(set(first)) == 3
    assert fingerprints(check(failed(problems=(moved, BUDGET, BUDGET)))) == first
    other = fingerprints(check(failed(problems=(COPIES, BUDGET, BUDGET), model="other.py")))
    assert not set(first) & set(other)
    blanks = replace(COPIES, place=Place("my models/ä.py", 1))
    (found,) = run(check(failed(problems=(blanks,))))["results"]
    assert location(found) == "my%20models/%C3%A4.py"
    placed = replace(COPIES, place=Place("../placements/p.json", 1))
    result = check(failed(problems=(sample_check.LEFT, placed))).within(Path("models/here"))
    found = run(result)["results"]
    assert [*map(location, found)] == ["models/here/models/ranker.py", "models/placements/p.json"]


@given(sample_check.hostile_names)
def test_no_name_breaks_the_log_or_makes_a_link(name):
    content = run(sample_check.hostile(name))
    text = json.dumps(content, ensure_ascii=False)
    assert json.loads(text.encode()) == content
    assert all(line.isprintable() and "##" not in line for line in text.splitlines())
    assert "](" not in text
