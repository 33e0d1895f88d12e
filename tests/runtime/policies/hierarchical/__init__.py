"""Tests of the hierarchy of managers: known answers and properties of the specification by number.

| number | test |
| --- | --- |
| answer 1, HI3 | workloads/russorusso2018/test_model.py |
| answer 2, HI8, HI15 | test_q_learning.py |
| answer 3, HI4 to HI6 | test_thresholds.py |
| answer 4 to 6, HI9 to HI14 | test_learning.py |
| answer 7, HI18 to HI20 | workloads/russorusso2018/test_model.py |
| answer 8, HI16, HI17 | test_granting.py |
| properties of the tables | test_properties.py |
| packs | test_packing.py |
"""
