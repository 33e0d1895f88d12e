"""The evaluation of Lombardi et al. 2018: "Elastic Symbiotic Scaling of Operators and Resources in
Stream Processing Systems" (TPDS). Applications, loads, a model of hosts,
and the contestants that decide in it."""
