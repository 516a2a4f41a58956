"""A contract is read back as it was written, or refused with the place of what is wrong first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pytest
from annotated_types import Ge, Le

from placement_advisor.files.contract import (
    STRICT,
    ByName,
    Count,
    Ns,
    Ratio,
    Rows,
    Share,
    Text,
    like,
    plain,
    value_of,
)
from placement_advisor.files.foreign_json import MisfitError


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    import_: Count
    share: Share
    ci95: tuple[Ratio, Ratio]
    compute_ns: ByName[Ns]
    line: Count | None = None

    def __post_init__(self) -> None:
        if self.ci95[0] > self.ci95[1]:
            raise ValueError("its ends are not in order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    __pydantic_config__: ClassVar = STRICT

    schema_version: Annotated[int, Ge(1), Le(3)]
    rows: Rows[Row]
    basis: Literal["measured", "simulated"] | None
    name: Text
    is_quick: bool


ROW = Row(import_=3, share=0.5, ci95=(1.0, 2.0), compute_ns={"CPU:0": 7})
SOUND = Document(schema_version=2, rows=(ROW,), basis=None, name="naïve", is_quick=False)


def read(document: object) -> Document:
    return value_of(Document, json.dumps(document).encode())


def test_what_is_written_is_read_back_with_its_keys_and_without_what_may_be_absent() -> None:
    written = plain(SOUND)
    assert list(written["rows"][0]) == ["import", "share", "ci95", "compute_ns"]
    assert written["basis"] is None
    assert read(written) == SOUND
    assert read({**written, "of a newer version": 1}) == SOUND


def test_a_value_is_made_of_what_another_one_has_by_the_same_names() -> None:
    assert like(Row, ROW, line=4) == Row(
        import_=3, share=0.5, ci95=(1.0, 2.0), compute_ns={"CPU:0": 7}, line=4
    )


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ((), [], "[] is not an object"),
        (("schema_version",), 4, "schema_version: 4 is newer than the 3 that this advisor reads"),
        (("schema_version",), "2", "schema_version: '2' is not a whole number"),
        (("rows",), {}, "rows: {} is not a list"),
        (("rows",), [None], "rows[0]: None is not an object"),
        (("rows", 0, "import"), None, "rows[0].import: None is not a whole number"),
        (("rows", 0, "import"), 1.5, "rows[0].import: 1.5 is not a whole number"),
        (("rows", 0, "import"), 10**30, "is not a whole number"),
        (("rows", 0, "share"), 1.5, "rows[0].share: 1.5 is not a number of at most 1"),
        (("rows", 0, "share"), float("nan"), "rows[0].share: nan is not a number"),
        (("rows", 0, "ci95"), [1], "rows[0].ci95: [1] is too short"),
        (("rows", 0, "ci95"), [1, 2, 3], "rows[0].ci95: [1, 2, 3] is too long"),
        (("rows", 0, "ci95"), [2, 1], "rows[0]: its ends are not in order"),
        (("rows", 0, "ci95"), [0, 1], "rows[0].ci95[0]: 0 is not a number above 1e-09"),
        (("rows", 0, "compute_ns"), 3, "rows[0].compute_ns: 3 is not an object"),
        (
            ("rows", 0, "compute_ns"),
            {"a/b": -1},
            "rows[0].compute_ns.'a/b': -1 is not a time in whole nanoseconds",
        ),
        (("basis",), "felt", "basis: 'felt' is not measured or simulated"),
        (("name",), 7, "name: 7 is not a string"),
        (("name",), "n" * 20_000, "has more than 10,000 characters"),
        (("is_quick",), 1, "is_quick: 1 is neither true nor false"),
    ],
)
def test_what_is_wrong_first_is_said_with_its_place(
    path: tuple[str | int, ...], value: object, says: str
) -> None:
    document: Any = {"whole": plain(SOUND)}
    inner = document
    for step in ("whole", *path)[:-1]:
        inner = inner[step]
    inner[("whole", *path)[-1]] = value
    with pytest.raises(MisfitError) as caught:
        read(document["whole"])
    assert says in str(caught.value)


def test_what_is_missing_is_named() -> None:
    document = plain(SOUND)
    del document["rows"][0]["import"]
    with pytest.raises(MisfitError, match=r"^rows\[0\]: no field 'import'$"):
        read(document)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "not valid JSON: line 1, column 2"),
        (b"\xff", "not UTF-8 text at byte 0"),
        (b"[" * 100_000, "too deeply nested"),
        (b'{"name": "\\ud800"}', "not valid JSON: "),
        (b'{"rows": ' + b"9" * 5_000 + b"}", "a number with too many digits"),
        (b"[" + b"1," * 16_000_001 + b"1]", "more than 16 million values"),
    ],
)
def test_what_is_no_json_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(MisfitError) as caught:
        value_of(Document, text)
    assert str(caught.value).startswith(says)


def test_a_million_wrong_rows_are_one_error() -> None:
    document = plain(SOUND) | {"rows": [0] * 1_000_000}
    with pytest.raises(MisfitError, match=r"^rows\[0\]: 0 is not an object$"):
        read(document)
