"""Execution: compile planned terms to join programs, bind them to runs, run and profile them."""
