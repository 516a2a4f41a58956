import pytest
from placed_steps import diamond


@pytest.fixture(scope="session", autouse=True)
def compiled():
    """Compile the event loop before Hypothesis times any example."""
    diamond().simulate()
