"""The head's side of a cluster: jobs in the queue, and what became of them, whichever engine has them."""
