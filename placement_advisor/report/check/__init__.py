"""Reports of a check: text, Markdown, JSON, JUnit, SARIF, GitHub annotations."""
