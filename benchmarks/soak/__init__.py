"""Very many streams with faults and cancels: memory, descriptors, tasks and threads end where they began."""
