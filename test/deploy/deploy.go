// Package deploy holds no code, only the tests of what people deploy: each directory
// below it tests one thing in the repository's deploy/, or the Dockerfile (process is what
// they share, kube the program of make kube-e2e). They run the built binary and real tools,
// and import nothing of the program.
package deploy
