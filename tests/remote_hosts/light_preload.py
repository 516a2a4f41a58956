"""What the fork server of a light worker imports: nothing that takes time."""

from placement_advisor.processes import orphan_guard

orphan_guard.follow_the_command()
