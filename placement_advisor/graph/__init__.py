"""The op graph: what one step computes, by op and by layer, and where its ops are placed."""
