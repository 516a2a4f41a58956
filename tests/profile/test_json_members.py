"""Members of JSON lists, found without parsing the document."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement_advisor.profile.chrome_trace import list_start, members

if TYPE_CHECKING:
    from numpy.typing import NDArray

TEXT = st.text(alphabet='"\\[]{},: aé\n', max_size=8)
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)


def as_bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def found(text: str) -> list[Any]:
    data = as_bytes(text)
    start = list_start(data, "events")
    assert start is not None
    return list(members(data, start))


@given(
    st.lists(VALUE, max_size=4),
    st.dictionaries(TEXT.filter(lambda key: key != "events"), VALUE, max_size=2),
    st.sampled_from([None, 2]),
)
def test_members_are_those_of_the_parsed_document(
    events: list[Any], other: dict[str, Any], indent: int | None
) -> None:
    assert found(json.dumps(events, indent=indent)) == events
    document = {**other, "events": events, "more": other}
    assert found(json.dumps(document, indent=indent, ensure_ascii=False)) == events


@pytest.mark.parametrize(
    "text", ["{}", '{"events": 3, "other": []}', '{"other": {"events": []}}', '{"events"}', '"a"']
)
def test_what_has_no_such_list_has_none(text: str) -> None:
    assert list_start(as_bytes(text), "events") is None


@pytest.mark.parametrize("text", ["[", '["a', '["a\\"]', "{", '{"events": [1, 2', "3", " "])
def test_what_does_not_end_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ends within a value"):
        list_start(as_bytes(text), "events")


def test_a_mark_of_the_byte_order_is_passed_over_and_members_can_be_chosen() -> None:
    data = as_bytes('\ufeff[{"a": 1}, {"b": 2}, {"a": 3}]')
    start = list_start(data, "events")
    assert start is not None
    assert list(members(data, start, b'"a"')) == [{"a": 1}, {"a": 3}]
