package store

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"idemproxy/internal/dedup"
)

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

// keyLength is the length of a key, in bytes.
const keyLength = 32

// newKeyRing reads the keys, those in files too.
func newKeyRing(cfg EncryptionConfig) (keyRing, error) {
	var ring keyRing
	for _, k := range cfg.Keys {
		text := []byte(k.Key.Reveal())
		if k.KeyFile != "" {
			var err error
			if text, err = os.ReadFile(k.KeyFile); err != nil {
				return nil, fmt.Errorf("read key_file of encryption key %s: %w", k.ID, err)
			}
		}
		key, err := parseKey(text)
		if len(text) == keyLength && k.KeyFile != "" {
			key, err = text, nil // the bare bytes
		}
		if err != nil {
			return nil, fmt.Errorf("read encryption key %s: it %w", k.ID, err)
		}
		rk, err := newRingKey(k.ID, key)
		if err != nil {
			return nil, err
		}
		ring = append(ring, rk)
	}
	return ring, nil
}

// parseKey reads 32 bytes in base64, with or without padding, of either alphabet, or in
// hexadecimal digits. Its error holds nothing of them.
func parseKey(text []byte) ([]byte, error) {
	s := string(bytes.TrimSpace(text))
	if b, err := hex.DecodeString(s); err == nil && len(b) == keyLength {
		return b, nil
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := e.DecodeString(s); err == nil && len(b) == keyLength {
			return b, nil
		}
	}
	return nil, errors.New("must be 32 bytes as base64 or hexadecimal digits (openssl rand -base64 32)")
}
