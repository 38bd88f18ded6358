// Package documents has no code of its own. Its tests run what the documents for people
// show: commands with the program that `make build` makes, configurations, answers. It
// imports nothing of the program; CONTRIBUTING.md says how blocks are marked.
package documents
