from functools import cache

import pytest
from real_models import MODELS, load_and_trace


@pytest.fixture(scope="session")
def real_model(fork_server, tmp_path_factory):
    """Return a function that loads and traces one of the models here, once."""

    @cache
    def loaded_and_traced(name):
        return load_and_trace(MODELS / f"{name}.py", tmp_path_factory.mktemp(name), facts=True)

    return loaded_and_traced
