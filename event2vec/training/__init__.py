"""Recipes, objectives, runs, and Lightning."""
