from __future__ import annotations

import json

import jsonschema
import pytest
from contracts_page import PAGE, fields_of, with_tables

from placement_advisor.results.contracts import SCHEMA_NAMES, load_schema

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_tables_of_the_page_are_those_of_the_schemas() -> None:
    assert with_tables(TEXT) == TEXT, "run `make docs`"


def test_a_page_that_leaves_out_a_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no table for testbed of analysis"):
        with_tables(
            TEXT.replace("<!-- analysis: testbed, sessions -->", "<!-- analysis: model -->")
        )


def test_a_row_says_what_a_field_may_be() -> None:
    kinds = {field.path: field.kind for field in fields_of("analysis")}
    assert kinds["schema_version"] == "always 1"
    assert kinds["model.mode"] == "`train` · `infer`"
    assert kinds["model.batch_size"] == "integer or null"
    assert kinds["candidates[].samples"] == "list of integers or null"
    assert kinds["candidates[].predicted.compute_ns"] == "map to integers"
    assert kinds["candidates[].measured.bytes_basis"] == "`profile` · `shapes` or null"
    assert kinds["as_is.step_ns"] == "*Steps*"
    assert kinds["Steps.ci95"] == "list of 2 integers"
    assert kinds["findings[].where.line"] == "integer, may be absent"


def test_the_examples_of_the_page_fit_the_schemas() -> None:
    examples = [block.split("```", 1)[0] for block in TEXT.split("```json\n")[1:]]
    assert len(examples) == len(SCHEMA_NAMES)
    for name, example in zip(SCHEMA_NAMES, examples, strict=True):
        jsonschema.Draft202012Validator(load_schema(name)).validate(json.loads(example))
