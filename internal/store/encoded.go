package store

import (
	"context"
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

// maxInflated bounds what so many compressed bytes may inflate to: who can write to the
// store must not fill the memory of all replicas by a few kilobytes.
func maxInflated(n int) uint64 { return 8<<20 + 256*uint64(n) }

// encoded is a store whose records and notes are compressed and encrypted, as configured,
// in the store below. What was compressed or encrypted earlier is read whatever the
// configuration is now, as long as its key is in the ring.
type encoded struct {
	dedup.Store
	codec *codec
}

// codec is what turns entries into bytes of the store and back.
type codec struct {
	ring     keyRing
	above    dedup.Size // entries larger than this are compressed; 0: none
	deflater *zstd.Encoder
	inflater *zstd.Decoder
}

// newCodec makes what the configuration asks for. It fails if a key can't be read or is
// none.
func newCodec(cfg Config) (*codec, error) {
	ring, err := newKeyRing(cfg.Encryption)
	if err != nil {
		return nil, err
	}
	deflater, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	inflater, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	return &codec{ring: ring, above: cfg.CompressAbove, deflater: deflater, inflater: inflater}, nil
}

// around puts the decorator around a store.
func (c *codec) around(s dedup.Store) dedup.Store { return &encoded{Store: s, codec: c} }

// Unwrap returns the store below.
func (e *encoded) Unwrap() dedup.Store { return e.Store }

// Claim is dedup.Store's.
func (e *encoded) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	if len(req.Note) > 0 {
		req.Note = e.codec.encode(req.ID, req.Note)
	}
	found, err := e.Store.Claim(ctx, req)
	if err != nil || len(found.Blob) == 0 {
		return found, err
	}
	if found.Blob, err = e.codec.decode(req.ID, found.Blob); err != nil {
		return dedup.Found{}, fmt.Errorf("claim entry: %w", err)
	}
	return found, nil
}

// Complete is dedup.Store's.
func (e *encoded) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	if len(c.Blob) > 0 {
		c.Blob = e.codec.encode(id, c.Blob)
	}
	return e.Store.Complete(ctx, id, token, c)
}

// encode compresses, if that makes it smaller, and then encrypts.
func (c *codec) encode(id dedup.ID, plain []byte) []byte {
	if c.above > 0 && int64(len(plain)) > int64(c.above) {
		if small := c.deflater.EncodeAll(plain, []byte(compressedMagic)); len(small) < len(plain) && uint64(len(plain)) <= maxInflated(len(small)-len(compressedMagic)) {
			plain = small
		}
	}
	return c.ring.seal(id, plain)
}

func (c *codec) decode(id dedup.ID, b []byte) ([]byte, error) {
	b, err := c.ring.open(id, b)
	if err != nil {
		return nil, err
	}
	if rest, ok := cutMagic(b, compressedMagic); ok {
		if b, err = c.inflate(rest); err != nil {
			return nil, fmt.Errorf("inflate record: %w: %w", dedup.ErrUnreadable, err)
		}
	}
	return b, nil
}

// inflate reads one frame, which says how large its content is, as all do that encode made.
func (c *codec) inflate(b []byte) ([]byte, error) {
	var head zstd.Header
	if err := head.Decode(b); err != nil {
		return nil, err
	}
	if !head.HasFCS || head.FrameContentSize > maxInflated(len(b)) {
		return nil, zstd.ErrDecoderSizeExceeded
	}
	return c.inflater.DecodeAll(b, make([]byte, 0, head.FrameContentSize))
}

func cutMagic(b []byte, magic string) ([]byte, bool) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return b, false
	}
	return b[len(magic):], true
}
