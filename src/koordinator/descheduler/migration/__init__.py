"""Moves of single pods: PodMigrationJobs, and who carries them out."""
