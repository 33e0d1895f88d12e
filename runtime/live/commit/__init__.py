"""Turns of an instance, their commit, and what a journal tells of earlier ones."""
