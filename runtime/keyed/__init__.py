"""What an operator keeps by key: state, timers, windows, and event time.

Values and pure logic only; what drives them is in `runtime.live`.
"""
