"""Shortcut search: the accuracy of predictors without the skill of a task, for every task and length.

answers      a sample of answers with the tokens that are visible to each
columns      features for linear models and small perceptrons
keys         features for lookup tables, per answer and per position
classes      the feature classes by name
fit          the predictors
search       every predictor on every class, and the baseline: the best of those that do not express the skill
baselines    packaged results, and results saved in a cache folder
"""
