import pytest
from command_runs import few_rounds


@pytest.fixture(scope="module", autouse=True)
def _few_rounds():
    with few_rounds():
        yield
