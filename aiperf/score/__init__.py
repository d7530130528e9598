"""The score: operations counted, credited and set on the clock."""
