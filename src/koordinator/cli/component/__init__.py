"""Parts of every long-running command: flags, process, leader election, servers."""
