"""The parts that several figures share: lines, ratios, reach, theme, and a figure that has nothing to show."""
