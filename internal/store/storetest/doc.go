// Package storetest says what a correct store is, as tests that every implementation of
// dedup.Store runs: Run in real time, RunInBubble under testing/synctest.
//
// It also holds what tests of stores need around them: StartRedis, a real redis-server
// that can be killed and paused, and StartShim, a TCP proxy that loses replies.
//
// It does not know any store: a Harness brings one.
package storetest
