"""Tests of scaling policies, a folder each."""
