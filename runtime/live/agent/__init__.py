"""The agent of a run: members, their lives, boards, services, the journal of the run."""
