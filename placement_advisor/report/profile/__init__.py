"""Reports of a profile that was read: text, Markdown, JSON."""
