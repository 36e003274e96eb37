"""What a store needs that a group shares: whose an experiment is, and why somebody was refused."""
