"""Parts of graphs for certain devices."""
