// Package dedup is the promise of idemproxy without any plumbing: which requests
// are the same operation, and which of them may be executed.
//
// It holds the rule of a route, the key a caller sends and the scope it counts in,
// the fingerprint of a request, the record of an answer with its versioned bytes,
// the state machine (Guard) that decides between executing, replaying and refusing,
// the closed list of refusals, and the one interface of the program, Store.
//
// It does not speak HTTP, does not know any database, logs nothing and counts
// nothing: internal/proxy brings requests in and answers out, internal/store keeps
// the bytes. It imports the standard library only.
package dedup
