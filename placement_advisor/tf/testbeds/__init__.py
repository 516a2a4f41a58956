"""Where candidates really run."""
