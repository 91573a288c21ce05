"""The pieces of the future's estimators: data, policies, training, queries, comparison methods."""
