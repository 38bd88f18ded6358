// Package deploy holds no code, only the tests of what people deploy: each directory
// below it tests one thing in the repository's deploy/, or the Dockerfile. They run
// the built binary and real tools, and import nothing of the program.
package deploy
