"""Tables, figures, page. Adds no numbers."""
