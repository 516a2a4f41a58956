"""What the user points at -> one step to trace, and what it is run on."""
