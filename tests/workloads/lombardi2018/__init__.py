"""Tests of the evaluation of Lombardi et al. 2018."""
