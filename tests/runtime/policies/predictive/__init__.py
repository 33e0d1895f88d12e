"""Tests of the predictive policies."""
