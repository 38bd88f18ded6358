package dedup

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"time"
)

// A Record is what is remembered of an executed operation.
type Record struct {
	// NotStored says that the operation was executed and its answer not kept, for it was
	// too large or endless. Status is then what was answered; Header, Trailer and Body
	// are empty.
	NotStored   bool
	Fingerprint Fingerprint
	ReplayScope ReplayScope
	Completed   time.Time // when the answer was complete, to the millisecond, by the proxy's clock
	Status      int
	Origin      Origin // where it was executed; zero in records of version 1
	Trace       TraceID
	Header      Fields // end-to-end headers only
	Trailer     Fields
	Body        []byte
}

// Fields are header fields: the values of each name in their order. Names are kept as
// they are; their order among each other is not kept, as net/http doesn't know it.
type Fields map[string][]string

// A TraceID names the span of an execution: 16 bytes of its trace and 8 of its own, as W3C
// Trace Context has them. Zeros mean that it was not traced.
type TraceID [24]byte

// The layout of a record, version 2. All numbers are unsigned varints (encoding/binary),
// all strings have their length before them, and names are sorted:
//
//	'I' 'D' 'R'  format version  recipe of the fingerprint  flags
//	fingerprint (32 bytes)  replay scope (32 bytes)
//	completed (ms since 1970)  status  route  replica  trace (24 bytes)  header  trailer  body
//	CRC-32C of all before (4 bytes, big endian)
//
// where header and trailer are: number of names, then for each its name, the number of
// its values, and the values. No byte of a value is changed or interpreted. The trace is
// there if a flag says so.
//
// Version 1 is the same without route and replica. It is read as ever, and is still what a
// record without an origin is written as.
const (
	recordMagic    = "IDR"
	recordVersion1 = 1
	recordVersion  = 2
	flagNotStored  = 1
	flagTraced     = 2

	recordHead = len(recordMagic) + 3
	recordMin  = recordHead + 2*sha256Size + crcSize
	sha256Size = 32
	crcSize    = crc32.Size
)

// Encode returns the record's bytes. Equal records have equal bytes.
func (r *Record) Encode() []byte {
	b := make([]byte, 0, recordMin+64+r.Origin.size()+r.Header.size()+r.Trailer.size()+len(r.Body))
	flags, version := byte(0), byte(recordVersion)
	if r.NotStored {
		flags |= flagNotStored
	}
	if r.Trace != (TraceID{}) {
		flags |= flagTraced
	}
	if r.Origin == (Origin{}) {
		version = recordVersion1
	}
	b = append(b, recordMagic...)
	b = append(b, version, Recipe, flags)
	b = append(b, r.Fingerprint[:]...)
	b = append(b, r.ReplayScope[:]...)
	b = binary.AppendUvarint(b, uint64(r.Completed.UnixMilli()))
	b = binary.AppendUvarint(b, uint64(r.Status))
	if version != recordVersion1 {
		b = r.Origin.appendTo(b)
	}
	if flags&flagTraced != 0 {
		b = append(b, r.Trace[:]...)
	}
	b = r.Header.appendTo(b)
	b = r.Trailer.appendTo(b)
	b = binary.AppendUvarint(b, uint64(len(r.Body)))
	b = append(b, r.Body...)
	return binary.BigEndian.AppendUint32(b, checksum(b))
}

// DecodeRecord reads a record's bytes. What is not a whole record of a version and
// recipe known here is ErrUnreadable. Body is a part of b, which must not be changed.
func DecodeRecord(b []byte) (*Record, error) {
	switch {
	case len(b) < recordMin || string(b[:len(recordMagic)]) != recordMagic:
		return nil, fmt.Errorf("decode record of %d bytes: not a record: %w", len(b), ErrUnreadable)
	case b[3] != recordVersion && b[3] != recordVersion1:
		return nil, fmt.Errorf("decode record: format version %d, known are 1 to %d: %w", b[3], recordVersion, ErrUnreadable)
	case b[4] != Recipe:
		return nil, fmt.Errorf("decode record: fingerprint recipe %d, known is %d: %w", b[4], Recipe, ErrUnreadable)
	case b[5]&^(flagNotStored|flagTraced) != 0:
		return nil, fmt.Errorf("decode record: unknown flags %#x: %w", b[5], ErrUnreadable)
	case binary.BigEndian.Uint32(b[len(b)-crcSize:]) != checksum(b[:len(b)-crcSize]):
		return nil, fmt.Errorf("decode record: checksum differs: %w", ErrUnreadable)
	}
	r := &Record{NotStored: b[5]&flagNotStored != 0}
	d := decoder{rest: b[recordHead : len(b)-crcSize]}
	copy(r.Fingerprint[:], d.take(sha256Size))
	copy(r.ReplayScope[:], d.take(sha256Size))
	r.Completed = time.UnixMilli(int64(d.number())).UTC()
	status := d.number()
	if b[3] != recordVersion1 {
		r.Origin = d.origin()
	}
	traced := b[5]&flagTraced != 0
	if traced {
		copy(r.Trace[:], d.take(uint64(len(r.Trace))))
	}
	r.Header = d.fields()
	r.Trailer = d.fields()
	r.Body = d.take(d.number())
	if d.failed || len(d.rest) > 0 || traced != (r.Trace != TraceID{}) || status < 100 || status > 999 {
		return nil, fmt.Errorf("decode record: contents don't add up: %w", ErrUnreadable)
	}
	r.Status = int(status)
	return r, nil
}

// size is at least the number of bytes that appendTo appends, but for very many fields.
func (f Fields) size() int {
	n := 8
	for name, values := range f {
		n += len(name) + 8
		for _, v := range values {
			n += len(v) + 4
		}
	}
	return n
}

func (f Fields) appendTo(b []byte) []byte {
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	slices.Sort(names)
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = appendPart(b, name)
		b = binary.AppendUvarint(b, uint64(len(f[name])))
		for _, v := range f[name] {
			b = appendPart(b, v)
		}
	}
	return b
}

// A decoder reads from the front of rest. Once it has failed it only returns zeros.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) take(n uint64) []byte {
	if d.failed || n > uint64(len(d.rest)) {
		d.failed = true
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.failed || size <= 0 {
		d.failed = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) text() string { return string(d.take(d.number())) }

func (d *decoder) fields() Fields {
	n := d.count()
	if n == 0 {
		return nil
	}
	f := make(Fields, min(n, 64)) // n is only what the bytes say
	for last := ""; n > 0; n-- {
		name := d.text()
		if len(f) > 0 && name <= last { // unsorted or twice: nothing that Encode writes
			d.failed = true
		}
		values := make([]string, 0, d.count())
		for range cap(values) {
			values = append(values, d.text())
		}
		if d.failed {
			return nil
		}
		f[name], last = values, name
	}
	return f
}

// count reads how many things follow. Each takes a byte at least, so that a count beyond
// the bytes that are left is none.
func (d *decoder) count() int {
	n := d.number()
	if n > uint64(len(d.rest)) {
		d.failed = true
		return 0
	}
	return int(n)
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Matches reports whether a request is the one that was recorded; a rule that compares
// no fingerprints takes every request for it.
func (r *Record) Matches(f Fingerprint) bool {
	none := Fingerprint{}
	return f == none || r.Fingerprint == none || bytes.Equal(f[:], r.Fingerprint[:])
}
