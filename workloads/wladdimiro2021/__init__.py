"""The evaluation of Wladdimiro et al. 2021, again: "A Multi-Metric Adaptive Stream Processing
System" (NCA 2021)."""
