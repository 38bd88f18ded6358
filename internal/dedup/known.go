package dedup

import (
	"encoding/json"
	"math"
	"time"
)

// KeyState is what a key is to an operator.
type KeyState string

// States of a key.
const (
	KeyFree       KeyState = "free"
	KeyInProgress KeyState = "in-progress"
	KeyUnknown    KeyState = "unknown" // marked so, or a claim whose lease is over
	KeyCompleted  KeyState = "completed"
	// KeyUnreadable: a record that can't be read, for lack of a key or of this version's
	// knowledge.
	KeyUnreadable KeyState = "unreadable"
)

// KeyStates returns the states that keys can be listed by.
func KeyStates() []KeyState {
	return []KeyState{KeyInProgress, KeyUnknown, KeyCompleted, KeyUnreadable}
}

// inStore is the one state of entries that a key in this state has; 0 where there are
// several.
func (s KeyState) inStore() State {
	switch s {
	case KeyInProgress:
		return StateInProgress
	case KeyUnknown:
		return StateUnknown
	case KeyCompleted, KeyUnreadable:
		return StateCompleted
	default:
		return 0
	}
}

// Known is what is known of a key. Nothing of it was chosen by a caller, but for Response.
type Known struct {
	ID        ID        `json:"key_hash"`
	State     KeyState  `json:"state"`
	Route     string    `json:"route,omitempty"`
	Replica   string    `json:"owner,omitempty"` // which executes it, or did
	Since     time.Time `json:"since,omitzero"`  // claimed or, of a record, completed, by its owner's clock
	LeaseLeft Seconds   `json:"lease_left_seconds,omitempty"`
	TTLLeft   Seconds   `json:"ttl_left_seconds,omitempty"`
	Status    int       `json:"status,omitempty"`              // of the recorded answer
	NotStored bool      `json:"response_not_stored,omitempty"` // it was too large to keep
	Size      int       `json:"size_bytes"`                    // as the store keeps it
	Response  *Response `json:"response,omitempty"`            // only where it is asked for
}

// A Response is a recorded answer.
type Response struct {
	Header  Fields `json:"header,omitempty"`
	Trailer Fields `json:"trailer,omitempty"`
	Body    []byte `json:"body"` // base64 in JSON
}

// know tells what an entry says.
func know(e Entry, response bool) Known {
	k := Known{ID: e.ID, Size: e.Size, LeaseLeft: Seconds(e.LeaseLeft), TTLLeft: Seconds(e.TTLLeft)}
	switch e.State {
	case StateInProgress:
		k.State = KeyInProgress
	case StateUnknown:
		k.State = KeyUnknown
	case StateCompleted:
		return k.recorded(e, response)
	default:
		k.State = KeyFree
		return k
	}
	if note, err := DecodeNote(e.Blob); err == nil { // else a claim of before there were notes
		k.Route, k.Replica, k.Since = note.Origin.Route, note.Origin.Replica, note.Claimed
	}
	return k
}

func (k Known) recorded(e Entry, response bool) Known {
	r, err := DecodeRecord(e.Blob)
	if err != nil {
		k.State = KeyUnreadable
		return k
	}
	k.State, k.Route, k.Replica, k.Since = KeyCompleted, r.Origin.Route, r.Origin.Replica, r.Completed
	k.Status, k.NotStored = r.Status, r.NotStored
	if response && !r.NotStored {
		k.Response = &Response{Header: r.Header, Trailer: r.Trailer, Body: r.Body}
	}
	return k
}

// Seconds is a duration that is seconds in JSON, to the millisecond.
type Seconds time.Duration

// MarshalJSON is json.Marshaler's.
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(s).Milliseconds()) / 1000)
}

// UnmarshalJSON is json.Unmarshaler's.
func (s *Seconds) UnmarshalJSON(b []byte) error {
	var n float64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*s = Seconds(math.Round(n*1000)) * Seconds(time.Millisecond)
	return nil
}
