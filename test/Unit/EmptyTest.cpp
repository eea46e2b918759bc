// Stands here until the tests of lib/Schedule land.
