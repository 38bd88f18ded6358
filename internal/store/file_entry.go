package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"idemproxy/internal/dedup"
)

// The layout of an entry in the file: a header, and then the claim's note or the record's
// bytes. Numbers are big-endian, instants are milliseconds since 1970 by the wall clock.
//
//	IDF1    magic and version of the layout
//	 4      CRC-32C of the entry's ID and of everything after this field
//	 1      p claimed (in progress, or its lease over) | d completed | u unknown
//	22      the owner's token
//	 8      end of the lease, of a claim
//	 8      expiry
const (
	fileMagic        = "IDF1"
	fileSummed       = len(fileMagic) + 4 // what follows is in the checksum
	fileHeaderLength = fileSummed + 1 + dedup.TokenLength + 8 + 8
)

// encodeFileEntry is the entry as it lies in the file.
func encodeFileEntry(e *memoryEntry) []byte {
	b := make([]byte, 0, fileHeaderLength+len(e.data))
	b = append(b, fileMagic...)
	b = append(b, 0, 0, 0, 0, e.kind)
	b = append(b, e.token...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.leaseEnd/int64(time.Millisecond)))
	b = binary.BigEndian.AppendUint64(b, uint64(e.expiry/int64(time.Millisecond)))
	b = append(b, e.data...)
	binary.BigEndian.PutUint32(b[len(fileMagic):], fileSum(e.id, b[fileSummed:]))
	return b
}

// decodeFileEntry reads what encodeFileEntry made. The entry's data is a part of b.
func decodeFileEntry(id dedup.ID, b []byte) (*memoryEntry, error) {
	if len(b) < fileHeaderLength || string(b[:len(fileMagic)]) != fileMagic {
		return nil, fmt.Errorf("no entry of this version: %w", dedup.ErrUnreadable)
	}
	rest := b[fileSummed:]
	if binary.BigEndian.Uint32(b[len(fileMagic):]) != fileSum(id, rest) {
		return nil, fmt.Errorf("damaged entry: %w", dedup.ErrUnreadable)
	}
	e := &memoryEntry{id: id, kind: rest[0], token: dedup.Token(rest[1 : 1+dedup.TokenLength])}
	rest = rest[1+dedup.TokenLength:]
	e.leaseEnd = int64(binary.BigEndian.Uint64(rest)) * int64(time.Millisecond)
	e.expiry = int64(binary.BigEndian.Uint64(rest[8:])) * int64(time.Millisecond)
	e.data = rest[16:]
	switch e.kind {
	case entryClaimed, entryUnknown, entryCompleted:
		return e, nil
	default:
		return nil, fmt.Errorf("entry of an unknown kind: %w", dedup.ErrUnreadable)
	}
}

// fileSum also covers the ID, so that an entry is damaged under any other.
func fileSum(id dedup.ID, b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(id), table), table, b)
}

// expiryKey is where the order of expiry has the entry: its expiry, then its ID.
func expiryKey(e *memoryEntry) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(e.id)), uint64(e.expiry/int64(time.Millisecond)))
	return append(b, e.id...)
}
