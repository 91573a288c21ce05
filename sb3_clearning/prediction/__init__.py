"""Estimators of the future: queries, training, policies, comparison methods, plots."""
