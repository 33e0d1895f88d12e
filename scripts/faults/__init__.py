"""The parts of `scripts/chaos.py`: what is run, what is done to it, what is looked at."""
