"""Reports: text, files and pictures from an analysis."""
