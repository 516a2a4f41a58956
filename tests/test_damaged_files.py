import pytest
from damaged_files import LIMIT_S, MOST_BYTES, examined, readers

READERS = readers()


@pytest.mark.parametrize("kind", READERS)
def test_damaged_files_are_refused_in_one_message_or_read(kind):
    found = examined(READERS[kind], range(300))
    assert found["refused"] > 100
    assert found["read"] > 0
    assert found["grown_bytes"] < MOST_BYTES
    assert found["slowest_s"] < LIMIT_S
