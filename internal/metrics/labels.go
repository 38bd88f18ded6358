package metrics

import "slices"

// Outcomes of a request: the label "outcome". Every request has exactly one.
const (
	outcomeExecuted      = "executed"
	outcomeReplayed      = "replayed"
	outcomePassedThrough = "passed_through"
	outcomeRejected      = "rejected"
	outcomeReleased      = "released"
	outcomeFailed        = "failed"
)

// StateRefused is the label "state" of a question about a key that was not answered.
const StateRefused = "refused"

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

// Results of asking whether a caller may have a replay: the label "result" of
// idemproxy_replay_auths_total.
const (
	ReplayAllowed     = "allowed"
	ReplayRefused     = "refused"
	ReplayUnavailable = "unavailable"
)

// ReasonReplayRefused is the reason of a replay that replay_auth refused, with an answer of
// its own.
const ReasonReplayRefused = "replay_refused"

// Results of a wait for another request's answer: the label "result" of
// idemproxy_waits_total.
const (
	// WaitReplayed: the answer came, and was replayed.
	WaitReplayed = "replayed"
	// WaitTookOver: the key was free again, and this request was executed.
	WaitTookOver = "took_over"
	// WaitRefused: what was found in the end is a reason to refuse, counted besides.
	WaitRefused = "refused"
	// WaitTimedOut: wait_timeout was over.
	WaitTimedOut = "timed_out"
	// WaitLeft: the caller hung up.
	WaitLeft = "left"
	// WaitDrained: the proxy stopped serving.
	WaitDrained = "drained"
	// WaitNoRoom: too many were waiting already, or with too large bodies.
	WaitNoRoom = "no_room"
)

// Operations of a store: the label "op".
const (
	OpClaim    = "claim"
	OpRenew    = "renew"
	OpComplete = "complete"
	OpRelease  = "release"
	OpEnroll   = "enroll"
	OpDismiss  = "dismiss"
	OpPing     = "ping"
	OpLook     = "look"
	OpList     = "list"
	OpFree     = "free"
	OpTell     = "tell"
	OpTold     = "told"
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
// Route.Rejected knows, and ReasonReplayRefused: those counted by idemproxy_conflicts_total, and those counted by
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
		"invalid_token",
		"identity_unavailable",
		"request_too_large",
		"request_timeout",
		"store_unavailable",
		"record_unreadable",
		"replay_auth_unavailable",
		ReasonReplayRefused,
		"overloaded",
		"too_many_keys",
	}
	return conflicts, rejects
}

// forecasts returns what enforce can do with a request: the label "outcome" of
// idemproxy_would_total. Rejections stand there by their reason.
func forecasts() []string {
	conflicts, rejects := Reasons()
	return slices.Concat(
		[]string{outcomeExecuted, outcomeReplayed, outcomePassedThrough, outcomeReleased},
		conflicts, rejects,
		[]string{"upstream_unreachable", "upstream_timeout", "upstream_failed"},
	)
}

// causes returns the known causes of an unknown outcome.
func causes() []string {
	return []string{CauseTimeout, CauseConnection, CauseBody, CauseStore, CauseLease}
}

// replayAuths returns the known results of asking for a replay.
func replayAuths() []string {
	return []string{ReplayAllowed, ReplayRefused, ReplayUnavailable}
}

// waitResults returns the known results of a wait.
func waitResults() []string {
	return []string{WaitReplayed, WaitTookOver, WaitRefused, WaitTimedOut, WaitLeft, WaitDrained, WaitNoRoom}
}

// states returns what a caller can be told of a key, or that it was refused.
func states() []string {
	return []string{"free", "in-progress", "unknown", "completed", StateRefused}
}

// operations returns the known operations of a store.
func operations() []string {
	return []string{OpClaim, OpRenew, OpComplete, OpRelease, OpEnroll, OpDismiss, OpPing, OpLook, OpList, OpFree, OpTell, OpTold}
}

// actions returns what operators do to keys.
func actions() []string { return []string{"release", "purge"} }

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
