"""Commits of an instance, and the recovery of earlier ones from a journal."""
