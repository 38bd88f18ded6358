// Package proxy is idemproxy's HTTP: it finds the rule of a request, checks the request,
// asks the Guard of internal/dedup what to do, forwards what may be executed, records
// each answer before it delivers it, replays records, and answers refusals. It holds the
// one table from refusal to answer, the one place that logs and counts a request, the
// admin endpoints, and the life of the server.
//
// It does not know which store there is, and reads no configuration: cmd/idemproxy hands
// it both.
package proxy
