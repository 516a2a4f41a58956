"""Takes out of a text what says whose it is: names that are given, addresses, paths.

Left out: names that nobody gives, paths of a single folder, and the rest of one that has a space.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH, ADDRESS = "PATH", "ADDRESS"
# Names that TensorFlow gives to devices begin as paths do.
_PATH = re.compile(
    r"(?<![\w/.])(?:~|/(?!(?:job|host|device|replica|task):)[\w.+@-]+)(?:/[\w.+@-]+)+"
)
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
# What may be one; names of C++ have double colons, too.
_IPV6 = re.compile(r"(?<![\w:])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")


@dataclass(frozen=True, slots=True)
class Redactor:
    """What takes names out of texts; ``names`` has what is put in place of each."""

    names: Mapping[str, str]

    def text(self, text: str) -> str:
        """Return the text without them.

        >>> WithoutNames({"ann": "user"}).text("ann's /home/ann/x on 10.0.0.2, /job:worker/task:0")
        "user's PATH on ADDRESS, /job:worker/task:0"
        """
        text = _IPV4.sub(ADDRESS, _PATH.sub(PATH, text))
        text = _IPV6.sub(lambda found: ADDRESS if _is_address(found[0]) else found[0], text)
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", self.names[name], text)
        return text

    def json(self, content: Any) -> Any:
        """Return content of JSON without them, in keys as well."""
        if isinstance(content, str):
            return self.text(content)
        if isinstance(content, list):
            return [self.json(each) for each in content]
        if isinstance(content, dict):
            return {self.text(key): self.json(value) for key, value in content.items()}
        return content


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
