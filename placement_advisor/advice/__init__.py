"""From evidence to advice."""
