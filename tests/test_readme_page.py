from __future__ import annotations

import pytest
import readme_page

PAGE = """Before.

<!-- advisor one -->

```
old
```

Between.

<!-- advisor two -v; from: second -->

```
old

too
```

```
advisor three
```
"""
OUTPUTS = {"advisor one": "a\n\nb\n", "advisor two -v": "first\n\nsecond: 1\n  2\n\nthird\n"}


def test_blocks_are_filled_with_what_their_commands_put_out() -> None:
    assert readme_page.commands(PAGE) == list(OUTPUTS)
    filled = readme_page.filled(PAGE, OUTPUTS.__getitem__)
    assert filled == PAGE.replace("old\n```\n\nBetween", "a\n\nb\n```\n\nBetween").replace(
        "old\n\ntoo", "second: 1\n  2"
    )


def test_a_line_that_is_not_put_out_any_more_is_an_error() -> None:
    with pytest.raises(ValueError, match="substring not found"):
        readme_page.filled(PAGE, lambda _: "nothing of it\n")


def test_the_readme_shows_an_analysis_and_what_else_it_promises() -> None:
    shown = readme_page.commands(readme_page.PAGE.read_text(encoding="utf-8"))
    assert shown[0] == "advisor analyze sample_models/train_deepconn.py"
    last = [command.split(" && ")[-1] for command in shown]
    assert {command.split()[1] for command in last} >= {"analyze", "show", "diff", "trace"}
