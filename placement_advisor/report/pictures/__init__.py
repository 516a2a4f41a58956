"""Pictures: layers, timelines, comparisons, break-even."""
