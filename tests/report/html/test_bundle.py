"""Modules as one script."""

from __future__ import annotations

import pytest

from placement_advisor.report.html_file import bundle

ONE = """import { HEAD, twice } from './other.js';

export const shown = () => twice(HEAD);
"""
OTHER = """export const HEAD = 1;
const own = 2;

export async function later() {}
export function twice(of) {
  return own * of;
}
"""


def test_each_module_is_a_function_and_those_that_it_imports_stand_above_it() -> None:
    assert bundle({"one.js": ONE, "other.js": OTHER, "unused.js": "x"}, "one.js") == (
        """'use strict';
const modules = {};
modules['other.js'] = (() => {
const HEAD = 1;
const own = 2;

async function later() {}
function twice(of) {
  return own * of;
}
return { HEAD, later, twice };
})();
modules['one.js'] = (() => {
const { HEAD, twice } = modules['other.js'];

const shown = () => twice(HEAD);
return { shown };
})();
"""
    )


@pytest.mark.parametrize(
    "line",
    [
        "import all from './other.js';",
        "import { HEAD } from 'elsewhere';",
        "import { HEAD as TOP } from './other.js';",
        "export default 1;",
        "export { HEAD };",
        "const here = import.meta.url;",
        "const other = await import('./other.js');",
    ],
)
def test_what_it_does_not_know_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"one\.js: cannot be bundled"):
        bundle({"one.js": f"{line}\n", "other.js": OTHER}, "one.js")
