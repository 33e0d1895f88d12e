"""Tests of the evaluation of De Matteis & Mencagli 2017."""
