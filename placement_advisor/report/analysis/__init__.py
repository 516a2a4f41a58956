"""Reports of one analysis: text, Markdown, JSON, and the folder that holds them."""
