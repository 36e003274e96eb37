"""From findings to words: a recommendation, or why there is none and the command that helps."""
