"""From rows to batches: where rows come from, how they are preprocessed, the endless stream of batches."""
