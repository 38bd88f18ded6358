package dedup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// What operators do to keys.
const (
	ActionRelease = "release"
	ActionPurge   = "purge"
)

// An Action is an entry of the audit trail: what an operator removed.
type Action struct {
	Action string    `json:"action"` // ActionRelease or ActionPurge
	At     time.Time `json:"at"`     // by the clock of who acted
	By     string    `json:"by,omitempty"`
	Keys   int       `json:"keys"`               // how many
	ID     ID        `json:"key_hash,omitempty"` // of one that was named
	State  KeyState  `json:"state,omitempty"`    // which it was in, or which were purged
	Route  string    `json:"route,omitempty"`    // likewise
}

// tell writes an action into the trail, also for an operator who has left by now: it is
// done already.
func (k Keys) tell(ctx context.Context, a Action) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	a.At, a.By = time.Now().UTC().Truncate(time.Millisecond), k.By
	b, err := json.Marshal(a)
	if err == nil {
		err = k.Store.Tell(ctx, b)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntold, err)
	}
	return nil
}

// Actions returns what operators did after a position in the audit trail, and the position
// after it. After "" it returns nothing, and the position after all there is. What can't be
// read is left out.
func (k Keys) Actions(ctx context.Context, after string) ([]Action, string, error) {
	entries, at, err := k.Store.Told(ctx, after)
	if err != nil {
		return nil, "", fmt.Errorf("read actions: %w", err)
	}
	var actions []Action
	for _, entry := range entries {
		var a Action
		if json.Unmarshal(entry, &a) == nil {
			actions = append(actions, a)
		}
	}
	return actions, at, nil
}
