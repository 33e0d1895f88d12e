"""Tests of ELYSIUM's rules: known answers and properties of the specification by number.

| number | test |
| --- | --- |
| answers 1 to 3, EL1 to EL9, EL13 | test_known_answers.py |
| answers 4 and 5, EL16 | workloads/lombardi2018/test_applications.py |
| properties, EL15 | test_properties.py |
| EL12 | test_networks.py |
"""
