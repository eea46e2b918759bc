// Stands here until lib/Schedule lands.
