"""A head that left its terminal: the place that it went to, its life there, and its words."""
