"""The evaluation of Russo Russo et al. 2018, again: "Multi-Level Elasticity for Wide-Area Data
Streaming Systems: A Reinforcement Learning Approach" (Algorithms 11(9):134)."""
