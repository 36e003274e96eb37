"""The needs of a store that a group shares: whose an experiment is, and why somebody was refused."""
