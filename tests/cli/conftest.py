from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_runs import few_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def _few_rounds() -> Iterator[None]:
    with few_rounds():
        yield
