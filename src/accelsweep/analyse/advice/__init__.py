"""Advice in words: a recommendation, or the reason why there is none and the command that helps."""
