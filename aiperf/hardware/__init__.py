"""What is known of processors and accelerators without touching one: their names, peaks and bounds."""
