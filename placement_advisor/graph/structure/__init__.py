"""Structure of a model, found in its wiring and never in names. One kind of structure per file.

- `joins.towers`: parts that meet only at a join;
- `branches.parallel_branches`: what runs side by side between a fork and its meeting point;
- `repeats.repeated_blocks`: the same group of layers again and again.
"""
