"""What an encoding looks like: numbers to look at, by slot, and their rendering as text and as a figure."""
