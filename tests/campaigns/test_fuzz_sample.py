import fuzz
import pytest
from campaign import drawn


@pytest.mark.campaign
@pytest.mark.parametrize("case", drawn(fuzz.cases(), 40, seed=0))
def test_damaged_files_are_refused_in_one_message_or_read(case):
    found = fuzz.examine(case)
    assert fuzz.is_right(found), found
