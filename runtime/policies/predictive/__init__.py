"""Predictive, latency-aware scaling (De Matteis & Mencagli, PDP 2017).

An operator gets just enough instances to keep its mean latency under a bound: its load is forecast
(`forecast`), the latency of each number of instances is predicted by a queueing model (`queueing`),
and the course of the next steps that costs least is found (`horizon`); only its first step is
taken. `balance` determines which keys move. All of it is pure: values in, values out.
"""
