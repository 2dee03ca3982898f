"""Dockerfiles, for every builder: their lines, what they read, their context, what a build may make and say."""
