"""The figures. Each figure contains its data rows, so that chart, static SVG and CSV show the same numbers."""
