package store

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"idemproxy/internal/dedup"
)

// How the bytes of an entry begin that this decorator has made. What begins otherwise is
// kept and given back as it is: entries from before encryption or compression was turned
// on stay readable.
const (
	compressedMagic = "IDZ1" // then a zstd frame
	sealedMagic     = "IDE1" // then the length of the key's id, the id, a nonce, AES-256-GCM
)

// maxInflated bounds what a compressed record may inflate to.
const maxInflated = 1 << 30

// encoded is a store whose records and notes are compressed and encrypted, as configured,
// in the store below. What was compressed or encrypted earlier is read whatever the
// configuration is now, as long as its key is in the ring.
type encoded struct {
	dedup.Store
	ring     keyRing
	above    dedup.Size // bodies larger than this are compressed; 0: none
	deflater *zstd.Encoder
	inflater *zstd.Decoder
}

// newEncoded puts the decorator around a store.
func newEncoded(s dedup.Store, ring keyRing, above dedup.Size) (*encoded, error) {
	deflater, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	inflater, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxInflated))
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	return &encoded{Store: s, ring: ring, above: above, deflater: deflater, inflater: inflater}, nil
}

// Unwrap returns the store below.
func (e *encoded) Unwrap() dedup.Store { return e.Store }

// Claim is dedup.Store's.
func (e *encoded) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	if len(req.Note) > 0 {
		req.Note = e.encode(req.ID, req.Note)
	}
	found, err := e.Store.Claim(ctx, req)
	if err != nil || len(found.Blob) == 0 {
		return found, err
	}
	if found.Blob, err = e.decode(req.ID, found.Blob); err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	return found, nil
}

// Complete is dedup.Store's.
func (e *encoded) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	if len(c.Blob) > 0 {
		c.Blob = e.encode(id, c.Blob)
	}
	return e.Store.Complete(ctx, id, token, c)
}

// encode compresses, if that makes it smaller, and then encrypts.
func (e *encoded) encode(id dedup.ID, plain []byte) []byte {
	if e.above > 0 && int64(len(plain)) > int64(e.above) {
		if small := e.deflater.EncodeAll(plain, []byte(compressedMagic)); len(small) < len(plain) {
			plain = small
		}
	}
	return e.ring.seal(id, plain)
}

func (e *encoded) decode(id dedup.ID, b []byte) ([]byte, error) {
	b, err := e.ring.open(id, b)
	if err != nil {
		return nil, err
	}
	if rest, ok := cutMagic(b, compressedMagic); ok {
		if b, err = e.inflater.DecodeAll(rest, nil); err != nil {
			return nil, fmt.Errorf("inflate record: %w: %w", dedup.ErrUnreadable, err)
		}
	}
	return b, nil
}

func cutMagic(b []byte, magic string) ([]byte, bool) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return b, false
	}
	return b[len(magic):], true
}

// A keyRing encrypts with its first key and decrypts with all of them.
type keyRing []ringKey

type ringKey struct {
	id   string
	aead cipher.AEAD
}

// newRingKey makes a key of its 32 bytes.
func newRingKey(id string, key []byte) (ringKey, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return ringKey{}, fmt.Errorf("encryption key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return ringKey{}, fmt.Errorf("encryption key: %w", err)
	}
	return ringKey{id, aead}, nil
}

// seal encrypts for one entry: the entry's ID and the key's id are authenticated with it,
// so that what is sealed can be opened in no other entry. The nonce is random; with 96
// bits a key is good for 2^32 records (NIST SP 800-38D, 8.3).
func (r keyRing) seal(id dedup.ID, plain []byte) []byte {
	if len(r) == 0 {
		return plain
	}
	key := r[0]
	b := make([]byte, 0, len(sealedMagic)+1+len(key.id)+key.aead.NonceSize()+len(plain)+key.aead.Overhead())
	b = append(b, sealedMagic...)
	b = append(b, byte(len(key.id)))
	b = append(b, key.id...)
	nonce := b[len(b) : len(b)+key.aead.NonceSize()]
	rand.Read(nonce) // never fails: crypto/rand ends the program if the system has no randomness
	b = b[:len(b)+len(nonce)]
	return key.aead.Seal(b, nonce, plain, associated(id, key.id))
}

// open decrypts what seal made; what it did not make it returns as it is.
func (r keyRing) open(id dedup.ID, b []byte) ([]byte, error) {
	rest, sealed := cutMagic(b, sealedMagic)
	if !sealed {
		return b, nil
	}
	if len(rest) == 0 || len(rest) < 1+int(rest[0]) {
		return nil, fmt.Errorf("open record: it is cut short: %w", dedup.ErrUnreadable)
	}
	keyID, rest := string(rest[1:1+rest[0]]), rest[1+rest[0]:]
	for _, key := range r {
		if key.id != keyID {
			continue
		}
		size := key.aead.NonceSize()
		if len(rest) < size {
			return nil, fmt.Errorf("open record: it is cut short: %w", dedup.ErrUnreadable)
		}
		plain, err := key.aead.Open(nil, rest[:size], rest[size:], associated(id, keyID))
		if err != nil {
			return nil, fmt.Errorf("open record: %w: %w", dedup.ErrUnreadable, errors.New("it was changed, moved, or sealed with another key of the same id"))
		}
		return plain, nil
	}
	return nil, fmt.Errorf("open record: no key for it in store.encryption.keys: %w", dedup.ErrUnreadable)
}

// associated is the data that a sealed record is bound to.
func associated(id dedup.ID, keyID string) []byte {
	return []byte("idemproxy record 1\x00" + keyID + "\x00" + string(id))
}
