"""CP-SAT as every exact search here uses it: without what made it call infeasible what is not.

Seen with OR-Tools 9.15 (docs/decisions/0013-exact-search-with-cp-sat.md): a presolve rule takes the
condition off a conditional linear constraint after it has summed up a part of the terms only, so
that the constraint then holds always (https://github.com/google/or-tools/pull/5294). The rule is
one of those that are off at a work limit of 0. Rules that keep not all solutions are off as well:
what they gain here is nothing, and a rule that errs has less to err with.
"""

from __future__ import annotations

from ortools.sat.python import cp_model


def new_solver() -> cp_model.CpSolver:
    """Return a solver whose verdicts are to be believed, as far as is known."""
    solver = cp_model.CpSolver()
    solver.parameters.presolve_inclusion_work_limit = 0
    solver.parameters.keep_all_feasible_solutions_in_presolve = True
    return solver
