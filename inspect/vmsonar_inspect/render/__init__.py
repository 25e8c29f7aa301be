"""Renderables for the terminal; rich is imported by whoever uses them."""
