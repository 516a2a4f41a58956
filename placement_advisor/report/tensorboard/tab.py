"""Writes what the Placement tab of TensorBoard shows, again and again while an analysis runs.

A reader finds each file complete, as it was or as it is.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from placement_advisor.files.log_files import DETAILS, OVERVIEW
from placement_advisor.report.pictures.layer_map import LayerMap, layer_map
from placement_advisor.report.tensorboard.tab_details import details_as_json
from placement_advisor.report.tensorboard.tab_json import overview_as_json

if TYPE_CHECKING:
    from pathlib import Path

    from placement_advisor.analysis.recorder import Review
    from placement_advisor.graph.op_graph import OpGraph


class Tab:
    """The files of the tab in one log directory."""

    def __init__(self, folder: Path, graph: OpGraph) -> None:
        """Write into a log directory, about candidates for a graph."""
        self._folder, self._graph = folder, graph
        # What has been written of each candidate: its prediction, its profile.
        self._written: dict[str, tuple[object, object]] = {}

    def show(self, review: Review) -> None:
        """Write what there is; of candidates, what is new."""
        for candidate in review.candidates:
            profile = candidate.profile
            content = candidate.predicted, profile
            if review.testbed is None or self._written.get(candidate.name, (None, None)) == content:
                continue
            devices = review.testbed.cluster.place_names()
            details = details_as_json(candidate, self._graph, self._layers, devices)
            _write(self._folder / DETAILS / f"{candidate.name}.json", details)
            self._written[candidate.name] = content
        _write(self._folder / OVERVIEW, overview_as_json(review, self._layers))

    @cached_property
    def _layers(self) -> LayerMap:
        return layer_map(self._graph)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
