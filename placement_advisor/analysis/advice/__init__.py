"""From what was found to a verdict, its reasons, and instructions to follow."""
