"""Processes: the parent that forks them, idle ones, what they become, and how they end."""
