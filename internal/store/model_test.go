package store_test

import (
	"fmt"
	"slices"
	"time"

	"idemproxy/internal/dedup"
)

// A span is an instant of which is known that it lies in it, both ends included, in time
// since the start of a run. By a clock of our own its ends are the same.
type span struct{ lo, hi time.Duration }

func (s span) plus(d time.Duration) span { return span{s.lo + d, s.hi + d} }

// since is how long after another instant it is.
func (s span) since(at span) span { return span{s.lo - at.hi, s.hi - at.lo} }

// Whether something that happens at an instant may be before, or not before, another.
func (s span) mayBeBefore(end span) bool    { return s.lo < end.hi }
func (s span) mayNotBeBefore(end span) bool { return s.hi >= end.lo }

// Kinds of a model.
const (
	modelFree      = "free"
	modelClaimed   = "claimed"
	modelUnknown   = "unknown"
	modelCompleted = "completed"
)

// A model is what a correct store holds under one ID. Its methods are the whole of what
// dedup.Store says about an operation: which answers are right, and what is there then.
type model struct {
	kind   string
	token  dedup.Token
	lease  span // the end of the lease, of a claim
	expiry span
	blob   string // of a record
}

// A world is one thing that may happen.
type world struct {
	answer string
	then   model
	left   span // of the lease or the record, if the answer says
}

// An answer is what a store says.
type answer struct {
	text string
	left time.Duration
}

func (m model) claim(req dedup.ClaimRequest, at span) []world {
	claimed := model{kind: modelClaimed, token: req.Token, lease: at.plus(req.Lease), expiry: at.plus(req.TTL)}
	return m.worlds(at, world{answer: "acquired", then: claimed}, func() []world {
		again := m
		again.lease = at.plus(req.Lease)
		over := world{answer: "unknown", then: m}
		if req.Takeover {
			over = world{answer: "taken over", then: claimed}
		}
		switch {
		case m.kind == modelCompleted:
			return []world{{"completed " + m.blob, m, m.expiry.since(at)}}
		case m.kind == modelUnknown:
			return []world{over}
		case m.token == req.Token:
			return []world{{answer: "acquired", then: again}}
		}
		var all []world
		if at.mayBeBefore(m.lease) {
			all = append(all, world{"in progress", m, m.lease.since(at)})
		}
		if at.mayNotBeBefore(m.lease) {
			all = append(all, over)
		}
		return all
	})
}

func (m model) renew(token dedup.Token, lease time.Duration, at span) []world {
	return m.worlds(at, world{answer: "gone", then: model{kind: modelFree}}, func() []world {
		if m.kind != modelClaimed || m.token != token {
			return []world{{answer: "fenced", then: m}}
		}
		renewed := m
		renewed.lease = at.plus(lease)
		renewed.expiry = span{max(m.expiry.lo, renewed.lease.lo), max(m.expiry.hi, renewed.lease.hi)}
		return []world{{answer: "applied", then: renewed}}
	})
}

func (m model) complete(token dedup.Token, c dedup.Completion, at span) []world {
	record := model{kind: modelCompleted, token: token, expiry: at.plus(c.TTL), blob: string(c.Blob)}
	gone := world{answer: "gone", then: record}
	if c.Unknown {
		gone = world{answer: "gone", then: model{kind: modelFree}}
	}
	return m.worlds(at, gone, func() []world {
		marked := m
		marked.kind = modelUnknown
		switch {
		case m.token != token, m.kind == modelCompleted && c.Unknown:
			return []world{{answer: "fenced", then: m}}
		case m.kind == modelCompleted: // repeated
			return []world{{answer: "applied", then: m}}
		case c.Unknown:
			return []world{{answer: "applied", then: marked}}
		default:
			return []world{{answer: "applied", then: record}}
		}
	})
}

func (m model) release(token dedup.Token, at span) []world {
	return m.worlds(at, world{answer: "gone", then: model{kind: modelFree}}, func() []world {
		if m.kind != modelClaimed || m.token != token {
			return []world{{answer: "fenced", then: m}}
		}
		return []world{{answer: "applied", then: model{kind: modelFree}}}
	})
}

// worlds are those without an entry, if it may be expired, and those with it, if it may
// live.
func (m model) worlds(at span, without world, with func() []world) []world {
	var all []world
	if m.kind == modelFree || at.mayNotBeBefore(m.expiry) {
		all = append(all, without)
	}
	if m.kind != modelFree && at.mayBeBefore(m.expiry) {
		all = append(all, with()...)
	}
	return all
}

// after are the models that remain when a store gave this answer; none if it is wrong.
func after(models []model, worlds func(model) []world, heard answer) []model {
	var then []model
	for _, m := range models {
		for _, w := range worlds(m) {
			right := w.answer == heard.text && (w.left == span{} || w.left.lo <= heard.left && heard.left <= w.left.hi)
			if right && !slices.Contains(then, w.then) {
				then = append(then, w.then)
			}
		}
	}
	return then
}

// maybe are the models that there may be when nobody knows the store's answer.
func maybe(models []model, worlds func(model) []world) []model {
	var then []model
	for _, m := range models {
		for _, w := range worlds(m) {
			then = append(then, w.then)
		}
	}
	return then
}

func claimAnswer(found dedup.Found) answer {
	switch found.State {
	case dedup.StateAcquired:
		return answer{text: "acquired"}
	case dedup.StateTakenOver:
		return answer{text: "taken over"}
	case dedup.StateInProgress:
		return answer{"in progress", found.LeaseLeft}
	case dedup.StateUnknown:
		return answer{text: "unknown"}
	case dedup.StateCompleted:
		return answer{"completed " + string(found.Blob), found.TTLLeft}
	default:
		return answer{text: fmt.Sprintf("state %d", found.State)}
	}
}

func ownerAnswer(v dedup.Verdict) answer {
	switch v {
	case dedup.Applied:
		return answer{text: "applied"}
	case dedup.Gone:
		return answer{text: "gone"}
	case dedup.Fenced:
		return answer{text: "fenced"}
	default:
		return answer{text: fmt.Sprintf("verdict %d", v)}
	}
}
