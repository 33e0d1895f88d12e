"""The agent of a run: members, their incarnations, boards, services, the journal of the run."""
