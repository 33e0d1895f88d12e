"""Commits of an instance, and what a journal tells of earlier ones."""
