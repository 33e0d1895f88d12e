"""Tests of the evaluation of Wladdimiro et al. 2021."""
