"""The evaluation of De Matteis & Mencagli 2017, again: "Elastic Scaling for Distributed
Latency-sensitive Data Stream Operators" (PDP 2017)."""
