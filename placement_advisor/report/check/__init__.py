"""Reports of a check: text, Markdown, JSON, SARIF, GitHub annotations."""
