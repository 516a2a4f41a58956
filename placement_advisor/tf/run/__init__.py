"""What the processes of a testbed do: run, verify, profile and time steps."""
