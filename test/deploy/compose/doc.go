// Package compose tests the compose files of deploy/docker without an engine: each is
// read as docker compose reads it, strictly, its containers' rights are compared field by
// field, and what it mounts is checked by the program that will read it. What the files do
// is shown by test/e2e, with real processes, and by scripts/docker-e2e.sh on a real engine.
package compose
