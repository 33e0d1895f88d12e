"""What an operator keeps by key: state, timers, windows, and event time.

Values and pure logic only; drivers are in `runtime.live` and `runtime.simulation`.
"""
