"""Times of a GPU's kernels from what its datasheet says, with constants fitted to a public record."""
