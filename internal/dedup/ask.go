package dedup

import (
	"context"
	"time"
)

// A Standing is what a caller may learn of a key of its own without sending the request
// again.
type Standing struct {
	State     KeyState  `json:"state"`                         // KeyFree, KeyInProgress, KeyUnknown or KeyCompleted
	Status    int       `json:"status,omitempty"`              // of the recorded answer
	Completed time.Time `json:"completed_at,omitzero"`         // when that was complete, by the proxy's clock
	NotStored bool      `json:"response_not_stored,omitempty"` // it was too large to keep, and won't be replayed
}

// Ask tells what is known of a key in a scope under a rule, in one round trip to the store,
// and changes nothing. What a replay would be refused for, and what another rule has
// executed, reads as free. Of a rule with replay_auth, who is not asked here, it tells no
// more than the state.
func (g *Guard) Ask(ctx context.Context, rule *Rule, scope Scope, key Key, header Header) (ID, Standing, *Rejection) {
	id := scope.ID(key)
	e, err := g.store.Look(ctx, id)
	if err != nil {
		return id, Standing{}, g.failed(nil, err).Rejection
	}
	known := know(e, false)
	if known.State == KeyUnreadable {
		return id, Standing{}, g.failed(nil, ErrUnreadable).Rejection
	}
	// The route that is asked about decides which headers must match, so that it must be the
	// key's own. Claims and records of older versions don't tell theirs.
	if known.State == KeyFree || known.Route != "" && known.Route != rule.Name {
		return id, Standing{State: KeyFree}, nil
	}
	if known.State != KeyCompleted {
		return id, Standing{State: known.State}, nil
	}
	record, err := DecodeRecord(e.Blob)
	if err != nil {
		return id, Standing{}, g.failed(nil, err).Rejection
	}
	bound := len(rule.ReplayScopeHeaders) > 0 || known.Route == ""
	if bound && record.ReplayScope != rule.ReplayScope(id, header, scope.subject) {
		return id, Standing{State: KeyFree}, nil
	}
	if rule.ReplayAuth.URL != "" {
		return id, Standing{State: KeyCompleted}, nil
	}
	return id, Standing{KeyCompleted, record.Status, record.Completed, record.NotStored}, nil
}
