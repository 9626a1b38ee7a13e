"""The workers of a run: replay, actor, learner, evaluator, and those of the user."""
