"""Tests of the evaluation of Russo Russo et al. 2018."""
