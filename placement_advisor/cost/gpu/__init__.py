"""Times of a GPU's kernels, from its datasheet and constants that are fitted to a public record."""
