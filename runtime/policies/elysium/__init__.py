"""Operators and hosts scaled apart, both from profiles (ELYSIUM: Lombardi et al., TPDS 2018).

What comes in gives the rate of each operator (`rates`), its rate the processor time of an instance
(`costs`), that how many instances it should have (`sizing`), and all of them how many hosts it
takes (`allocating`). `joint` is the baseline, which scales both at once. All of it is pure.
"""
