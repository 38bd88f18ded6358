// Package e2e tests idemproxy as those meet it who run it: the built binary, a
// configuration file, HTTP in, HTTP out. It imports none of the program's packages.
//
// Every test has its own proxy processes and its own upstream, which records what
// reaches it: a status alone proves nothing. Where the store matters, a test runs on
// each one, see eachStore. The servers of Redis and PostgreSQL are real ones that TestMain
// starts; the tests share them and keep apart by their key prefixes.
//
// Whatever a test sends with the helpers of caller_test.go is remembered: no key,
// credential, query value or body may turn up in a log or in an answer of the proxy
// itself. The binary is built with the race detector where there is a C compiler; a
// report of it, or a panic, fails the test whose process wrote it.
package e2e
