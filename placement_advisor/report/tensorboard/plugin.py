"""The plugin that TensorBoard finds by its entry point: the tab Placement.

Served are the scripts of the tab, which lie beside this file, and what analyses under the log
directory have written for it. The scripts make elements and text of that, never markup.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from tensorboard.plugins import base_plugin

from placement_advisor.report.find_analysis import Run, find_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Environ = Mapping[str, Any]
    Start = Callable[[str, list[tuple[str, str]]], object]
    App = Callable[[Environ, Start], Iterable[bytes]]

_STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_JSON = "application/json"


class PlacementPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab Placement."""

    plugin_name = "placement"

    def __init__(self, context: base_plugin.TBContext) -> None:
        """Serve what lies under the log directory; there is none where TensorBoard has several."""
        super().__init__(context)
        self._logdir = Path(context.logdir).resolve() if context.logdir else None
        self._known: Run | None = None

    def get_plugin_apps(self) -> dict[str, App]:
        """Return what answers each route."""
        static = {
            f"/static/{file.name}": _file(file)
            for file in _STATIC.iterdir()
            if file.suffix in _TYPES
        }
        return {
            **static,
            "/runs": self._runs,
            "/overview": self._overview,
            "/details": self._details,
        }

    def is_active(self) -> bool:
        """Whether there is an analysis: TensorBoard asks often, so the one found last will do."""
        if self._known is None or not self._known.changed_ns:
            self._known = next(self._find(), None)
        return self._known is not None

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Name the tab and its script. The script asks for news itself, and keeps what is open."""
        return base_plugin.FrontendMetadata(
            es_module_path="/static/index.js", tab_name="Placement", disable_reload=True
        )

    def _find(self) -> Iterator[Run]:
        return iter(()) if self._logdir is None else find_runs(self._logdir)

    def _runs(self, environ: Environ, start: Start) -> Iterable[bytes]:
        found = [
            {"name": run.name, "changed": str(run.changed_ns), "running": run.is_running}
            for run in self._find()
        ]
        return _answer(start, json.dumps(found).encode(), _JSON)

    def _overview(self, environ: Environ, start: Start) -> Iterable[bytes]:
        run = self._asked(environ)
        return _answer(start, None if run is None else run.overview(), _JSON)

    def _details(self, environ: Environ, start: Start) -> Iterable[bytes]:
        run = self._asked(environ)
        content = None if run is None else run.details(_query(environ, "candidate"))
        return _answer(start, content, _JSON)

    def _asked(self, environ: Environ) -> Run | None:
        name = _query(environ, "run")
        return next((run for run in self._find() if run.name == name), None)


def _query(environ: Environ, key: str) -> str:
    query: str = environ.get("QUERY_STRING", "")
    return parse_qs(query).get(key, [""])[0]


def _file(path: Path) -> App:
    def app(environ: Environ, start: Start) -> Iterable[bytes]:
        return _answer(start, path.read_bytes(), _TYPES[path.suffix])

    return app


def _answer(start: Start, content: bytes | None, kind: str) -> Iterable[bytes]:
    status = "200 OK" if content is not None else "404 Not Found"
    body = content or b""
    headers = [
        ("Content-Type", kind),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
    ]
    start(status, headers)
    return [body]
