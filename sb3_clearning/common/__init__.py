"""What the algorithms share: exploration, policies, offline learning, logs, evaluation."""
