"""The figures. Each is a value with its rows, so that the chart, the static SVG and the CSV show the same numbers."""
