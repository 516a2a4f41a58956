import contextlib
import functools
from dataclasses import dataclass
from typing import ClassVar

import pytest
from browsers import Opened, new_page

from placement_advisor.report.tensorboard.server import tensorboard

_FRAME = 'iframe[src*="name=placement"]'
# What is shown last of an analysis.
_AWAIT_COPIES = """() => {
  window.copiesShown = new Promise((shown) => new MutationObserver(() => shown()).observe(
    document.querySelector('section[aria-label=Copies] .copies'), { childList: true }));
}"""


@dataclass
class Tab(Opened):
    address: str = ""
    height: ClassVar = 2_300  # So tall that the frame does not scroll.

    @property
    def outside(self):
        """The addresses that were asked for elsewhere, all of them in vain."""
        here = (self.address, "data:", "blob:")
        return {url for url in self.asked if not url.startswith(here)}

    @property
    def frame(self):
        return self.page.frame_locator(_FRAME)

    def open(self):
        self.page.goto(f"{self.address}#placement", wait_until="domcontentloaded")
        self.frame.locator("section[aria-label=Copies] .copies > *").first.wait_for()

    def run(self, script, argument=None):
        return self.page.query_selector(_FRAME).content_frame().evaluate(script, argument)

    def choose_run(self, name):
        """Open an analysis, unless it is open, and wait until all of it is there."""
        select = self.frame.get_by_label("Analysis")
        if select.input_value() != name:
            self.run(_AWAIT_COPIES)
            select.select_option(name)
            self.run("() => window.copiesShown")


@pytest.fixture(scope="module")
def open_tab(browser):
    """Serves a log directory, once however often it is asked for, and opens it in a new page."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def served(logdir):
            address, _ = stack.enter_context(tensorboard(logdir, "127.0.0.1", 0))
            return address

        def opened(logdir):
            tab = new_page(browser, Tab, errors_alone=True)
            stack.callback(tab.page.close)
            tab.address = served(logdir)
            return tab

        yield opened
