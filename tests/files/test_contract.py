"""A contract is read back as it was written, or refused with the place of what is wrong first."""

import json
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, ClassVar, Literal, NamedTuple

import pytest
from annotated_types import Ge, Le
from pydantic import Field

from placement_advisor.files import contract
from placement_advisor.files.untrusted import MisfitError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    import_: contract.Count
    share: contract.Share
    ci95: tuple[contract.Ratio, contract.Ratio]
    compute_ns: contract.ByName[contract.Ns]
    line: contract.Count | None = None

    def __post_init__(self):
        if self.ci95[0] > self.ci95[1]:
            raise ValueError("its ends are not in order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    __pydantic_config__: ClassVar = contract.STRICT

    schema_version: Annotated[int, Ge(1), Le(3)]
    rows: contract.Rows[Row]
    basis: Literal["measured", "simulated"] | None
    name: contract.Text
    is_quick: bool


ROW = Row(import_=3, share=0.5, ci95=(1.0, 2.0), compute_ns={"CPU:0": 7})
SOUND = Document(schema_version=2, rows=(ROW,), basis=None, name="naïve", is_quick=False)


def read(document):
    return contract.value_of(Document, json.dumps(document).encode())


def test_what_is_written_is_read_back_with_its_keys_and_without_what_may_be_absent():
    written = contract.plain(SOUND)
    assert list(written["rows"][0]) == ["import", "share", "ci95", "compute_ns"]
    assert written["basis"] is None
    assert read(written) == SOUND
    assert read({**written, "of a newer version": 1}) == SOUND
    assert contract.like(Row, ROW, line=4) == replace(ROW, line=4)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ((), [], "[] is not an object"),
        (("schema_version",), 4, "schema_version: 4 is newer than the 3 that this advisor reads"),
        (("schema_version",), "2", "schema_version: '2' is not a version"),
        (("rows",), {}, "rows: {} is not a list"),
        (("rows",), [None], "rows[0]: None is not an object"),
        (("rows", 0, "import"), None, "rows[0].import: None is not a whole number"),
        (("rows", 0, "import"), 1.5, "rows[0].import: 1.5 is not a whole number"),
        (("rows", 0, "import"), 10**30, "is not a whole number"),
        (("rows", 0, "share"), 1.5, "rows[0].share: 1.5 is not a number from 0 to 1"),
        (("rows", 0, "share"), float("nan"), "rows[0].share: nan is not a number"),
        (("rows", 0, "ci95"), [1], "rows[0].ci95: [1] is too short"),
        (("rows", 0, "ci95"), [1, 2, 3], "rows[0].ci95: [1, 2, 3] is too long"),
        (("rows", 0, "ci95"), [2, 1], "rows[0]: its ends are not in order"),
        (("rows", 0, "ci95"), [0, 1], "rows[0].ci95[0]: 0 is not a number from 10^-9 to"),
        (("rows", 0, "compute_ns"), 3, "rows[0].compute_ns: 3 is not an object"),
        (
            ("rows", 0, "compute_ns"),
            {"a/b": -1},
            "rows[0].compute_ns.'a/b': -1 is not a time in whole nanoseconds",
        ),
        (("rows", 0), {"share": 0.5}, "rows[0]: no field 'import'"),
        (("basis",), "felt", "basis: 'felt' is not measured or simulated"),
        (("name",), 7, "name: 7 is not a string"),
        (("name",), "n" * 20_000, "has more than 10,000 characters"),
        (("is_quick",), 1, "is_quick: 1 is neither true nor false"),
    ],
)
def test_what_is_wrong_first_is_said_with_its_place(path, value, says):
    document = {"whole": contract.plain(SOUND)}
    inner = document
    for step in ("whole", *path)[:-1]:
        inner = inner[step]
    inner[("whole", *path)[-1]] = value
    with pytest.raises(MisfitError) as caught:
        read(document["whole"])
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "not valid JSON: EOF while parsing an object at line 1 column 1"),
        (b"\xff", "not valid JSON: expected value at line 1 column 1"),
        (b"[" * 100_000, "not valid JSON: recursion limit exceeded at line 1 column 202"),
        (b'{"name": "\\ud800"}', "not valid JSON: "),
        (b'{"rows": ' + b"9" * 5_000 + b"}", "not valid JSON: number out of range"),
        (b"[" + b"1," * 16_000_001 + b"1]", "more than 16 million values"),
    ],
)
def test_what_is_no_json_is_refused(text, says):
    with pytest.raises(MisfitError) as caught:
        contract.value_of(Document, text)
    assert str(caught.value).startswith(says)


def test_a_million_wrong_rows_are_one_error():
    document = contract.plain(SOUND) | {"rows": [0] * 1_000_000}
    with pytest.raises(MisfitError, match=r"^rows\[0\]: 0 is not an object$"):
        read(document)


class Point(NamedTuple):
    size_bytes: contract.Count
    time_ns: Annotated[contract.Ns, contract.What("a time from 0 to 2^60")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    __pydantic_config__: ClassVar = contract.CLOSED

    schema_version: Annotated[contract.Version, Le(1)] = 1
    path: Annotated[contract.Text, Field(alias="from")]
    curve: contract.Rows[Point] = ()
    sizes: Annotated[
        contract.Count | contract.Rows[contract.Count], contract.What("a size or a list of sizes")
    ] = 0


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"fron": "a"}, "fron: unknown key; did you mean from?"),
        (
            {"path": "a", "from": 3},
            "path: unknown key; there are schema_version, from, curve, sizes",
        ),
        ({"schema_version": 2, "more": 1}, "schema_version: 2 is newer than the 1"),
        ({"schema_version": 0, "from": "a"}, "schema_version: 0 is not a version"),
        ({"from": "a", "curve": [[1, 2], [1, -2]]}, "curve[1][1]: -2 is not a time from 0 to 2^60"),
        ({"from": "a", "curve": [[1, 2, 3]]}, "curve[0]: [1, 2, 3] is not [size_bytes, time_ns]"),
        ({"from": "a", "curve": [[]]}, "curve[0]: [] is not [size_bytes, time_ns]"),
        ({"from": "a", "curve": [7]}, "curve[0]: 7 is not [size_bytes, time_ns]"),
        ({"from": "a", "sizes": [1, "2"]}, "sizes: [1, '2'] is not a size or a list of sizes"),
        ({"from": "a", "sizes": None}, "sizes: None is not a size or a list of sizes"),
        ({"from": date(1979, 5, 27)}, "from: {'date': '1979-05-27'} is not a string"),
        ({"from": "a", "curve": [[0x1 << 99_999]]}, "a number with too many digits"),
        ([], "[] is not an object"),
    ],
)
def test_what_people_have_mistaken_is_said_with_what_it_should_be(document, says):
    with pytest.raises(MisfitError) as caught:
        contract.value_in(Settings, document)
    assert str(caught.value).startswith(says)


def test_settings_have_lists_where_a_contract_has_tuples_and_fewer_values():
    found = contract.value_in(Settings, {"from": "a", "curve": [[1, 2], [3]]})
    assert found == Settings(path="a", curve=(Point(1, 2), Point(3)))
    assert contract.value_in(Settings, {"from": "a", "sizes": [1, 2]}).sizes == (1, 2)
    with pytest.raises(MisfitError, match="more than 1 million values"):
        contract.value_of(Settings, b'{"more": [' + b"1," * 1_000_001 + b"1]}")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([{"size_bytes": 1, "time_ns": 2}, {"time_ns": 3}], "[1]: no field 'size_bytes'"),
        ([{"size_bytes": 1, "colour": 2}], "[0].colour: unknown key; there are size_bytes, "),
        ([[1, 2], [1, 2.5]], "[1][1]: 2.5 is not a time from 0 to 2^60"),
        ([[1, 2], [True, 2]], "[1][0]: True is not a whole number"),
        ({}, "{} is not a list"),
    ],
)
def test_rows_of_a_parsed_document_are_refused_with_the_place(value, says):
    with pytest.raises(MisfitError) as caught:
        contract.value_from(contract.Rows[Point], value)
    assert str(caught.value).startswith(says)
