The service nftproxy serves what the files *.yaml, *.yml and *.json in this
directory describe, and follows every change. Other files, such as this one,
are not read.

A file with a mistake does not affect the others: its last valid content stays
in use. "nftproxy status" and "systemctl status nftproxy" show the mistake.
Check a file before you put it here: nftproxy validate -f FILE

An example is in /usr/share/doc/nftproxy/examples.
