from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from real_models import MODELS, RealModel, load_and_trace

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def real_model(
    fork_server: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], RealModel]:
    """Return a function that loads and traces one of the models here, once."""

    @cache
    def loaded_and_traced(name: str) -> RealModel:
        return load_and_trace(MODELS / f"{name}.py", tmp_path_factory.mktemp(name), facts=True)

    return loaded_and_traced
