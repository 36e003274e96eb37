"""The estimates of a plan: time by earlier runs, prices, costs, and the smallest visible effect."""
