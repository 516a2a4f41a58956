from __future__ import annotations

import pytest
from contracts_page import PAGE, with_tables

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_those_of_the_types() -> None:
    assert with_tables(TEXT) == TEXT, "run `make docs`"


def test_a_page_that_leaves_out_a_contract_is_refused() -> None:
    with pytest.raises(ValueError, match="no place for profile"):
        with_tables(TEXT.replace("<!-- fields of profile -->", ""))


@pytest.mark.parametrize(
    "row",
    [
        "| `schema_version` | `1` |",
        "| `mode` | `train` `infer` |",
        "| `samples` | [int]? |",
        "| `compute_ns` | {int} |",
        "| `bytes_basis` | `profile` `shapes`? |",
        "| `ci95` | [2 × int] |",
        "| `line` * | int |",
    ],
)
def test_a_row_says_what_a_field_may_be(row: str) -> None:
    assert row in TEXT
