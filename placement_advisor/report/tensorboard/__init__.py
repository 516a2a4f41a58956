"""What TensorBoard shows of an analysis, and the tab Placement that serves it."""
