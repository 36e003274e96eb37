"""Results derived from findings beyond their sweep: advice on hardware, histories."""
