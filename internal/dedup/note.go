package dedup

import (
	"encoding/binary"
	"fmt"
	"time"
)

// An Origin tells where an operation is, or was, executed. Its names were chosen by who
// runs the proxy, never by a caller.
type Origin struct {
	Route   string // the rule's name
	Replica string // the replica's; empty if it has none
}

// A Note is what a claim tells about itself to those who look at it.
type Note struct {
	Origin  Origin
	Claimed time.Time // to the millisecond, by the proxy's clock
}

// The layout of a note, version 1: numbers and strings as in a record.
//
//	'I' 'D' 'N'  format version  route  replica  claimed (ms since 1970)
//	CRC-32C of all before (4 bytes, big endian)
const (
	noteMagic   = "IDN"
	noteVersion = 1
	noteMin     = len(noteMagic) + 1 + crcSize
)

// Encode returns the note's bytes. Equal notes have equal bytes.
func (n Note) Encode() []byte {
	b := make([]byte, 0, noteMin+12+n.Origin.size())
	b = append(b, noteMagic...)
	b = append(b, noteVersion)
	b = n.Origin.appendTo(b)
	b = binary.AppendUvarint(b, uint64(n.Claimed.UnixMilli()))
	return binary.BigEndian.AppendUint32(b, checksum(b))
}

// DecodeNote reads a note's bytes. What is not a whole note of a version known here is
// ErrUnreadable: no reason to refuse anything, for a note decides nothing.
func DecodeNote(b []byte) (Note, error) {
	switch {
	case len(b) < noteMin || string(b[:len(noteMagic)]) != noteMagic:
		return Note{}, fmt.Errorf("decode note of %d bytes: not a note: %w", len(b), ErrUnreadable)
	case b[3] != noteVersion:
		return Note{}, fmt.Errorf("decode note: format version %d, known is %d: %w", b[3], noteVersion, ErrUnreadable)
	case binary.BigEndian.Uint32(b[len(b)-crcSize:]) != checksum(b[:len(b)-crcSize]):
		return Note{}, fmt.Errorf("decode note: checksum differs: %w", ErrUnreadable)
	}
	d := decoder{rest: b[len(noteMagic)+1 : len(b)-crcSize]}
	n := Note{Origin: d.origin(), Claimed: time.UnixMilli(int64(d.number())).UTC()}
	if d.failed || len(d.rest) > 0 {
		return Note{}, fmt.Errorf("decode note: contents don't add up: %w", ErrUnreadable)
	}
	return n, nil
}

// note is what this claim tells about itself.
func (c *Claim) note() []byte { return Note{Origin: c.origin, Claimed: time.Now()}.Encode() }

func (o Origin) size() int { return len(o.Route) + len(o.Replica) + 4 }

func (o Origin) appendTo(b []byte) []byte { return appendPart(appendPart(b, o.Route), o.Replica) }

func (d *decoder) origin() Origin { return Origin{Route: d.text(), Replica: d.text()} }
