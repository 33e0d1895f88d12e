"""Tests of ELYSIUM's rules: known answers and properties of the specification by number.

| number | test |
| --- | --- |
| answers 1 to 3, EL1 to EL9, EL13 | test_known_answers.py |
| answers 4 and 5, EL16 | workloads/lombardi2018/test_applications.py |
| properties, EL15 | test_properties.py |
| EL12 | test_networks.py, test_profiling.py, test_forecasting.py |
| EL7 | test_forecasting.py |
| EL10 | test_assessing.py |
| EL11 | test_profiling.py |
| EL17 | test_learnt_bounds.py |
| EL-G20, no controller | test_agents.py |
| EL14, EL-G19 | workloads/lombardi2018/test_fluid.py |
"""
