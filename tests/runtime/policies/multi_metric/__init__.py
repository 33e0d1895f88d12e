"""Tests of the multi-metric policies."""
