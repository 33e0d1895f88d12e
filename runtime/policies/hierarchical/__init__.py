"""Operators and hosts scaled by a hierarchy of managers (Russo Russo et al., Algorithms 2018).

Two layers propose, two grant: managers of operators (`thresholds`, `learning`) ask that of their
pipeline (`granting`) for instances, managers of regions ask that of all hosts (`budgeting`) for
hosts. What a manager has learnt is a value that can be packed (`packing`). All of it is pure.
"""
