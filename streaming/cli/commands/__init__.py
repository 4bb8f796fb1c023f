"""The sub-commands of ``dbsp-wcoj``, a file for each."""
