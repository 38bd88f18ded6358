package metrics

// Outcomes of a request: the label "outcome". Every request has exactly one.
const (
	outcomeExecuted      = "executed"
	outcomeReplayed      = "replayed"
	outcomePassedThrough = "passed_through"
	outcomeRejected      = "rejected"
	outcomeReleased      = "released"
	outcomeFailed        = "failed"
)

// Causes of an unknown outcome: the label "cause" of idemproxy_unknown_outcomes_total.
const (
	// CauseTimeout: the upstream was given the request and no whole response came in time.
	CauseTimeout = "timeout"
	// CauseConnection: the upstream's connection was lost before the response's head came.
	CauseConnection = "connection"
	// CauseBody: the response's head came, its body did not come to its end.
	CauseBody = "body"
	// CauseStore: the upstream answered, but the answer was never recorded.
	CauseStore = "store"
	// CauseLease: a claim was found whose owner's lease had ended without a completion.
	CauseLease = "lease"
)

// Operations of a store: the label "op".
const (
	OpClaim    = "claim"
	OpRenew    = "renew"
	OpComplete = "complete"
	OpRelease  = "release"
	OpPing     = "ping"
)

// Results of loading the configuration again: the label "result" of
// idemproxy_config_reloads_total.
const (
	// ReloadOK: what changed is in force.
	ReloadOK = "ok"
	// ReloadRefused: the new configuration is wrong, and the old one stays in force.
	ReloadRefused = "refused"
	// ReloadUnchanged: no setting has another value.
	ReloadUnchanged = "unchanged"
)

// other is the label value of what is in none of the lists.
const other = "other"

// Reasons returns the codes of the proxy's own answers (contract §4) that
// Route.Rejected knows: those counted by idemproxy_conflicts_total, and those counted by
// idemproxy_rejects_total. Any other code is counted there as "other"; a new code needs
// a line here.
func Reasons() (conflicts, rejects []string) {
	conflicts = []string{
		"in_progress",
		"key_reuse",
		"replay_scope",
		"outcome_unknown",
		"response_not_stored",
	}
	rejects = []string{
		"missing_key",
		"invalid_key",
		"bad_request",
		"missing_identity",
		"invalid_identity",
		"request_too_large",
		"request_timeout",
		"store_unavailable",
		"record_unreadable",
		"overloaded",
	}
	return conflicts, rejects
}

// causes returns the known causes of an unknown outcome.
func causes() []string {
	return []string{CauseTimeout, CauseConnection, CauseBody, CauseStore, CauseLease}
}

// operations returns the known operations of a store.
func operations() []string {
	return []string{OpClaim, OpRenew, OpComplete, OpRelease, OpPing}
}

// reloads returns the known results of loading the configuration again.
func reloads() []string { return []string{ReloadOK, ReloadRefused, ReloadUnchanged} }

// resolve makes the children of a closed list of label values once, so that their
// series stand at 0 from the start (rate() needs a first value) and counting them needs
// no label lookup. The child of other is made when it is first needed: see pick.
func resolve[T any](values []string, child func(value string) T) map[string]T {
	children := make(map[string]T, len(values))
	for _, value := range values {
		children[value] = child(value)
	}
	return children
}

// pick returns the child of a value, or that of other when the value is not in the list.
func pick[T any](children map[string]T, value string, child func(value string) T) T {
	if c, ok := children[value]; ok {
		return c
	}
	return child(other)
}
