"""Its place puts this folder on the import path, so that the tests here can import ``crowds``."""
