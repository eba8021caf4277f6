"""Fuzzing: whatever is read from files, words and addresses ends in a result or in a message.

    python -m tests.fuzz                       all targets (make fuzz)
    python -m tests.fuzz --only pictures --cases 5000
    python -m tests.fuzz --replay pictures 4711

A case is a function of (target, seed, number). What a case may not do is in `guard.py`; inputs are made from valid ones
by `mutation.py`; each module of `targets` holds one or several targets.
"""
