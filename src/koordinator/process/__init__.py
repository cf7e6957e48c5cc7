"""Process services of long-running components: servers, leader election, logs, signals."""
