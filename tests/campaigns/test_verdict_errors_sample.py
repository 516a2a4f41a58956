"""A sample of the campaign on wrong verdicts."""

import pytest
from verdict_errors import examine

TRIALS = 200


@pytest.mark.campaign
@pytest.mark.parametrize("noise", ["at rest", "busy", "drawn"])
@pytest.mark.parametrize(
    "field",
    [
        "1 of 1 candidates",
        "7 of 7 candidates",
        "1 of 7 candidates",
        "5 of 5 candidates and 2 that join",
    ],
)
def test_at_the_threshold_few_verdicts_are_firm(noise, field):
    found = examine(f"{noise} noise, ratio 0.97, {field}, part 0", TRIALS)
    # One in twenty is 10; three standard deviations more are 19.
    assert found["wrong"] <= 19


@pytest.mark.campaign
@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.05])
@pytest.mark.parametrize("field", ["1 of 1", "7 of 7"])
def test_elsewhere_hardly_any_verdict_is_wrong(ratio, field):
    found = examine(f"at rest noise, ratio {ratio:g}, {field} candidates, part 0", TRIALS)
    assert found["wrong"] <= 4


@pytest.mark.campaign
@pytest.mark.parametrize("ratio", [0.85, 1.15])
@pytest.mark.parametrize("field", ["1 of 1", "7 of 7"])
def test_what_is_clear_is_told_soon(ratio, field):
    found = examine(f"drawn noise, ratio {ratio:g}, {field} candidates, part 0", TRIALS)
    assert found["right"] >= 0.95 * TRIALS - 9  # Three standard deviations fewer.
    assert found["rounds"] <= 1.5 * 15 * TRIALS  # No verdict comes before 15 rounds.
