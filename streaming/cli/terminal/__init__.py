"""How the commands look in a terminal: display, dashboard, logs, and errors in one line."""
