package dedup_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// goldenRecords are the files testdata/record-v*.bin, as a program of its own in another
// language wrote them from the layout in record.go. They never change: what this version
// has written, every later one must read. A new format gets new files.
func goldenRecords() map[string]*dedup.Record {
	completed := time.Date(2026, 3, 1, 12, 34, 56, 789e6, time.UTC)
	full := &dedup.Record{
		Completed: completed,
		Status:    201,
		Header: dedup.Fields{
			"Content-Type":   {"application/octet-stream"},
			"Content-Length": {"256"},
			"Set-Cookie":     {"a=1; Path=/, Secure", "b=2; Expires=Wed, 21 Oct 2026 07:28:00 GMT", "a=1; Path=/, Secure"},
			"X-Binary":       {"\x01\t\x80\xff ä"},
			"X-Empty":        {""},
			"X-None":         {},
			"x-lower-Case":   {" spaces stay "},
		},
		Trailer: dedup.Fields{"Grpc-Status": {"0"}, "X-Checksum": {"one", "", "three"}},
		Body:    allBytes(),
	}
	for i := range 32 {
		full.Fingerprint[i], full.ReplayScope[i] = byte(i), byte(0xe0+i)
	}
	notStored := &dedup.Record{NotStored: true, Completed: completed, Status: 507}
	for i := range 32 {
		notStored.Fingerprint[i] = 0xab
	}
	return map[string]*dedup.Record{
		"record-v1-full.bin":       full,
		"record-v1-empty.bin":      {Completed: time.UnixMilli(0).UTC(), Status: 204},
		"record-v1-not-stored.bin": notStored,
		"record-v2-full.bin": {
			Fingerprint: full.Fingerprint, ReplayScope: full.ReplayScope, Completed: completed, Status: 201,
			Origin: dedup.Origin{Route: "payments", Replica: "idemproxy-7d9f-x2x"},
			Header: dedup.Fields{
				"Content-Type": {"application/octet-stream"},
				"Set-Cookie":   {"a=1; Path=/, Secure", "b=2"},
				"X-Empty":      {""},
				"x-lower-Case": {" spaces stay "},
			},
			Trailer: dedup.Fields{"Grpc-Status": {"0"}}, Body: allBytes(),
		},
		"record-v2-no-replica.bin": {Completed: time.UnixMilli(0).UTC(), Status: 204, Origin: dedup.Origin{Route: "payments"}},
		"record-v2-not-stored.bin": {
			NotStored: true, Fingerprint: notStored.Fingerprint, Completed: completed, Status: 507,
			Origin: dedup.Origin{Route: "orders", Replica: "b"},
		},
		"record-v2-traced.bin": {
			Completed: completed, Status: 200, Origin: dedup.Origin{Route: "orders"},
			Trace: dedup.TraceID([]byte("\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36\x00\xf0\x67\xaa\x0b\xa9\x02\xb7")),
			Body:  []byte("ok"),
		},
	}
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// equalRecords compares all that a record means; an absent list and an empty one are one.
func equalRecords(a, b *dedup.Record) bool {
	fields := func(a, b dedup.Fields) bool { return maps.EqualFunc(a, b, slices.Equal) }
	return a.NotStored == b.NotStored && a.Fingerprint == b.Fingerprint && a.ReplayScope == b.ReplayScope &&
		a.Completed.UnixMilli() == b.Completed.UnixMilli() && a.Status == b.Status && a.Origin == b.Origin && a.Trace == b.Trace &&
		fields(a.Header, b.Header) && fields(a.Trailer, b.Trailer) && bytes.Equal(a.Body, b.Body)
}

func TestRecordIsGolden(t *testing.T) {
	for name, want := range goldenRecords() {
		b := golden(t, name)
		got, err := dedup.DecodeRecord(bytes.Clone(b))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !equalRecords(got, want) {
			t.Errorf("%s decodes to\n%+v, want\n%+v", name, got, want)
		}
		if got.Completed.Location() != time.UTC {
			t.Errorf("%s: completed in %v", name, got.Completed.Location())
		}
		if encoded := want.Encode(); !bytes.Equal(encoded, b) {
			t.Errorf("%s: encoded are\n%q, want\n%q", name, encoded, b)
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "record-v*.bin"))
	if err != nil || len(files) != len(goldenRecords()) {
		t.Errorf("files %v (%v), want all of them tested", files, err)
	}
}

// wantUnreadable decodes what is no record.
func wantUnreadable(t *testing.T, what string, b []byte) {
	t.Helper()
	if r, err := dedup.DecodeRecord(b); !errors.Is(err, dedup.ErrUnreadable) || r != nil {
		t.Errorf("%s: decodes to %+v, %v; want ErrUnreadable", what, r, err)
	}
}

func TestRecordDamaged(t *testing.T) {
	for name := range goldenRecords() {
		whole := golden(t, name)
		for n := range whole {
			wantUnreadable(t, name+" cut", bytes.Clone(whole[:n]))
			wantUnreadable(t, name+" without its beginning", bytes.Clone(whole[n+1:]))
			for bit := range 8 {
				b := bytes.Clone(whole)
				b[n] ^= 1 << bit
				wantUnreadable(t, name+" with one bit flipped", b)
			}
		}
		wantUnreadable(t, name+" and a byte", append(bytes.Clone(whole), 0))
		wantUnreadable(t, name+" twice", append(bytes.Clone(whole), whole...))
	}
	wantUnreadable(t, "nil", nil)
	for _, foreign := range []string{"", `{"status":200}`, "IDR", "OK", strings.Repeat("\x00", 100), strings.Repeat("IDR\x01\x01\x00", 20)} {
		wantUnreadable(t, foreign, []byte(foreign))
	}
}

// sealed makes a record of the bytes after its head, whatever they are, with a checksum
// that is right: what only a faulty or hostile writer makes.
func sealed(head, rest string) []byte {
	b := []byte(head + strings.Repeat("\x11", 64) + rest)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func TestRecordMadeWrong(t *testing.T) {
	const (
		head  = "IDR\x01\x01\x00"
		good  = "\x00\xc8\x01\x00\x00\x02ok" // completed 0, status 200, no header, no trailer, a body
		huge  = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
		most  = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" // 2^64-1
		start = "\x00\xc8\x01"
	)
	if r, err := dedup.DecodeRecord(sealed(head, good)); err != nil || string(r.Body) != "ok" || r.Status != 200 {
		t.Fatalf("the good one decodes to %+v, %v", r, err)
	}
	for name, b := range map[string][]byte{
		"another magic":             sealed("IDX\x01\x01\x00", good),
		"version 0":                 sealed("IDR\x00\x01\x00", good),
		"version 2 of version 1":    sealed("IDR\x02\x01\x00", good),
		"version 3":                 sealed("IDR\x03\x01\x00", good),
		"a route of 2^64-1":         sealed("IDR\x02\x01\x00", start+most+"\x00\x00\x00\x00"),
		"a replica that is cut":     sealed("IDR\x02\x01\x00", start+"\x01r\x09r"),
		"version 255":               sealed("IDR\xff\x01\x00", good),
		"recipe 0":                  sealed("IDR\x01\x00\x00", good),
		"recipe 2":                  sealed("IDR\x01\x02\x00", good),
		"a trace that is not there": sealed("IDR\x01\x01\x02", good),
		"a trace of zeros":          sealed("IDR\x01\x01\x02", start+strings.Repeat("\x00", 24)+good[len(start):]),
		"a trace that is cut":       sealed("IDR\x01\x01\x02", start+strings.Repeat("t", 23)),
		"flag 4":                    sealed("IDR\x01\x01\x04", good),
		"flags 1 and 128":           sealed("IDR\x01\x01\x81", good),
		"status 0":                  sealed(head, "\x00\x00\x00\x00\x00"),
		"status 99":                 sealed(head, "\x00\x63\x00\x00\x00"),
		"status 1000":               sealed(head, "\x00\xe8\x07\x00\x00\x00"),
		"status 2^64-1":             sealed(head, "\x00"+most+"\x00\x00\x00"),
		"status 2^32+200":           sealed(head, "\x00\xc8\x81\x80\x80\x10\x00\x00\x00"),
		"a byte after the body":     sealed(head, good+"\x00"),
		"nothing after the head":    sealed(head, ""),
		"no body":                   sealed(head, start+"\x00\x00"),
		"a body that is cut":        sealed(head, start+"\x00\x00\x03ok"),
		"a body of 2^63-1":          sealed(head, start+"\x00\x00"+huge+"ok"),
		"a body of 2^64-1":          sealed(head, start+"\x00\x00"+most+"ok"),
		"a number without an end":   sealed(head, strings.Repeat("\xff", 5)),
		"a number of 11 bytes":      sealed(head, strings.Repeat("\xff", 10)+"\x01"+good[1:]),
		"2^63-1 names":              sealed(head, start+huge),
		"2^64-1 names":              sealed(head, start+most),
		"a name of 2^64-1":          sealed(head, start+"\x01"+most+"n\x00\x00\x00"),
		"a name of 2^63-1 values":   sealed(head, start+"\x01\x01n"+huge+"\x00\x00"),
		"a value of 2^64-1":         sealed(head, start+"\x01\x01n\x01"+most+"\x00\x00"),
		"more names than there":     sealed(head, start+"\x03\x01n\x00"),
		"more values than there":    sealed(head, start+"\x01\x01n\x03\x01v"),
		"a name twice":              sealed(head, start+"\x02\x01n\x01\x01a\x01n\x01\x01b\x00\x00"),
		"names out of order":        sealed(head, start+"\x02\x01n\x00\x01m\x00\x00\x00"),
		"2^63-1 names of trailer":   sealed(head, start+"\x00"+huge),
	} {
		t.Run(name, func(t *testing.T) { wantUnreadable(t, name, b) })
	}
}

// TestRecordCountsAllocateNothing: a count is no promise. What a record makes us allocate
// is bounded by its own length, whatever it says.
func TestRecordCountsAllocateNothing(t *testing.T) {
	const (
		head  = "IDR\x01\x01\x00\x00"
		count = "\xff\xff\x3f" // 2^20-1
	)
	filler := strings.Repeat("\x00", 1<<20)
	for name, b := range map[string][]byte{
		"a small one, many names":  sealed("IDR\x01\x01\x00", "\x00\xc8\x01\xff\xff\xff\xff\x0f"),
		"a small one, many values": sealed("IDR\x01\x01\x00", "\x00\xc8\x01\x01\x01n\xff\xff\xff\xff\x0f"),
		"many names":               sealed("IDR\x01\x01\x00", "\x00\xc8\x01"+count+filler),
		"many values":              sealed("IDR\x01\x01\x00", "\x00\xc8\x01\x01\x01n"+count+filler),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := dedup.DecodeRecord(b); !errors.Is(err, dedup.ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		if got, bound := after.TotalAlloc-before.TotalAlloc, uint64(32*len(b)+64<<10); got > bound {
			t.Errorf("%s: a record of %d bytes made us allocate %d, more than %d", name, len(b), got, bound)
		}
	}
}

// TestRecordBodyIsLentNotCopied: the body is a part of the bytes, and can't grow into what
// follows it.
func TestRecordBodyIsLentNotCopied(t *testing.T) {
	b := golden(t, "record-v1-full.bin")
	r, err := dedup.DecodeRecord(b)
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(b)
	if r.Body = append(r.Body, "more"...); !bytes.Equal(b, before) {
		t.Error("appending to the body changes the record's bytes")
	}
}

func TestRecordEncodesTheSameEveryTime(t *testing.T) {
	r := goldenRecords()["record-v1-full.bin"]
	first := r.Encode()
	for range 50 {
		if !bytes.Equal(r.Encode(), first) {
			t.Fatal("equal records have different bytes")
		}
	}
}

// FuzzRecord: bytes never make DecodeRecord panic, what it accepts is encoded to the same
// record again, and what is encoded decodes to itself.
func FuzzRecord(f *testing.F) {
	for name := range goldenRecords() {
		b := golden(f, name)
		f.Add(b, b[70:len(b)-4], uint16(200), int64(1), "n", "v", []byte("body"))
	}
	f.Add([]byte("IDR"), []byte("\x00\xc8\x01\x02\x01n\x01\x01a\x01n\x01\x01b\x00\x00"), uint16(100), int64(-1), "", "", []byte(nil))
	f.Add([]byte{}, []byte("\x80\x00\xc8\x01\x00\x00\x00"), uint16(999), int64(1<<62), "\x00", "\xff", allBytes())
	f.Add([]byte{}, []byte("\x00\xc8\x01\xff\xff\xff\xff\x0f"), uint16(500), int64(0), "Set-Cookie", "a,b", []byte("\x00"))
	f.Fuzz(func(t *testing.T, raw, rest []byte, status uint16, completed int64, name, value string, body []byte) {
		for _, b := range [][]byte{raw, sealed("IDR\x01\x01\x00", string(rest)), sealed("IDR\x01\x01\x01", string(rest)), sealed("IDR\x02\x01\x00", string(rest)), sealed("IDR\x02\x01\x02", string(rest))} {
			r, err := dedup.DecodeRecord(b)
			if err != nil {
				if !errors.Is(err, dedup.ErrUnreadable) {
					t.Errorf("%v is not ErrUnreadable", err)
				}
				continue
			}
			wantRoundTrip(t, r)
		}
		wantRoundTrip(t, &dedup.Record{
			Fingerprint: dedup.Fingerprint{byte(status)}, ReplayScope: dedup.ReplayScope{1: byte(completed)},
			Completed: time.UnixMilli(completed), Status: 100 + int(status)%900, Body: body, Origin: dedup.Origin{Route: name, Replica: value}, Trace: dedup.TraceID{3: byte(status)},
			Header:  dedup.Fields{name: {value, "", value}, value: {name}, "-": {}},
			Trailer: dedup.Fields{value: {value}},
		})
	})
}

func wantRoundTrip(t *testing.T, r *dedup.Record) {
	t.Helper()
	first := r.Encode()
	again, err := dedup.DecodeRecord(bytes.Clone(first))
	if err != nil || !equalRecords(r, again) {
		t.Errorf("%+v decodes to %+v, %v", r, again, err)
		return
	}
	if second := again.Encode(); !bytes.Equal(first, second) {
		t.Errorf("%q is encoded again to %q", first, second)
	}
}
