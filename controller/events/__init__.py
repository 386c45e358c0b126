"""Events in the API: recorded, counted and sent."""
