"""Commands about the nodes of a cluster."""
