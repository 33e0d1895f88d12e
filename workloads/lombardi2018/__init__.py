"""The evaluation of Lombardi et al. 2018: "Elastic Symbiotic Scaling of Operators and Resources in
Stream Processing Systems" (TPDS). So far its applications, its figures and fair shares of cores."""
