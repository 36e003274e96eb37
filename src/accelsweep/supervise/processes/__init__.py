"""A run's processes: started on one node or several, watched, logged, ended. Nothing here depends on their work."""
