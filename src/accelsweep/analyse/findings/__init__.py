"""One module a finding: speed-ups, scaling, cost, quality, ladders, doubts."""
