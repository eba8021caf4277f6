"""Shortcut search: what predictors without a task's skill reach, measured for every task and length.

answers      a sample of answers with the tokens that are visible to each
columns      features for linear models and small perceptrons
keys         features for lookup tables
places       features of positions, for tasks that ask where something is
classes      the feature classes by name
fit          the predictors
search       every predictor on every class, and the baseline: the best of those that do not express the skill
saved        packaged results, and results remembered on disk
by_position  baselines per position, from lookup tables alone
"""
