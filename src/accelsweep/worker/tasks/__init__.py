"""What a run can do: train, train to a target, infer."""
