"""Files and archives: opened with care, written whole or not at all."""
