package main

// kind is what a variant does with a request.
type kind int

const (
	bareProxy kind = iota // httputil.ReverseProxy, the measure of all others
	unguarded             // idemproxy, no rule matches
	unique                // idemproxy, guarded, every request has a new key
	replay                // idemproxy, guarded, every caller repeats one request
)

// A variant is one row of the comparison: one proxy process and one kind of load.
type variant struct {
	name  string
	kind  kind
	store string  // of idemproxy
	goal  float64 // requests a second, as a ratio to the bare proxy's
}

func variants() []variant {
	return []variant{
		{name: "bare", kind: bareProxy},
		{name: "unguarded", kind: unguarded, store: "memory", goal: 0.95},
		{name: "unique-memory", kind: unique, store: "memory", goal: 0.80},
		{name: "replay-memory", kind: replay, store: "memory", goal: 2.0},
		{name: "unique-redis", kind: unique, store: "redis", goal: 0.50},
		{name: "replay-redis", kind: replay, store: "redis", goal: 1.4},
	}
}

// path is where the variant's requests go: both paths are equally long.
func (v variant) path() string {
	if v.kind == unguarded {
		return "/api/invoices"
	}
	return "/api/payments"
}

// config is the file idemproxy is started with: the defaults a user has (access log and
// metrics on), ports of its own, and room for a run's keys. Records live for a minute,
// since no real service takes this many new keys for a whole day.
func (v variant) config(listen, admin, upstream, redis string) string {
	c := "server: {listen: \"" + listen + "\"}\n" +
		"admin: {listen: \"" + admin + "\"}\n" +
		"upstream: {url: \"http://" + upstream + "\"}\n"
	switch v.store {
	case "redis":
		c += "store: {type: redis, redis: {url: \"redis://" + redis + "/0\"}}\n"
	default:
		c += "store: {type: memory, memory: {max_entries: 5000000, max_bytes: 4096MiB}}\n"
	}
	return c + "routes: [{name: payments, path: /api/payments, ttl: 60s}]\n"
}
