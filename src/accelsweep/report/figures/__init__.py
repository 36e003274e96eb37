"""The figures. Each is a value that holds its rows, so that chart, static SVG and CSV show the same numbers."""
