"""Arguments: the words and files of the command line, parsed into sources, sinks and views."""
