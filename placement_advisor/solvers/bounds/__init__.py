"""What no placement can beat: lower bounds on the step time, each with an argument to check."""
