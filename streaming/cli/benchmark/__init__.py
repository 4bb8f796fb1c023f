"""The parts of the sub-command ``bench``: repetition, report and plot."""
