"""What MkDocs does not do by itself for the site of `make docs` (mkdocs.yml names this file).

Pages of findings ship with the package and are pages of the site as well. A link to any other file
outside of docs/ is its text alone: the site has pages, the repository has files.
"""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
FINDINGS = "placement_advisor/analysis/findings/pages"
_SHELF = "reference/findings"
_LEAVING = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")


def on_files(files, config):
    """Add the pages of findings."""
    for path in sorted((ROOT / FINDINGS).glob("*.md")):
        files.append(File.generated(config, f"{_SHELF}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Return a page without links that leave the site."""
    folder = dirname(page.file.src_uri)
    return _LEAVING.sub(lambda link: _within(folder, *link.groups("")), markdown)


def _within(folder, text, target, anchor):
    path = normpath(f"docs/{folder}/{target}")
    if path.startswith("docs/"):
        return f"[{text}]({target}{anchor})"
    if path.startswith(FINDINGS):
        return f"[{text}]({relpath(f'{_SHELF}/{Path(path).name}', folder)}{anchor})"
    return text
