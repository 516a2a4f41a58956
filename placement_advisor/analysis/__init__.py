"""One analysis of a model, from what is asked to the verdict: price, predict, run, assemble."""
