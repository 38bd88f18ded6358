package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// keyLength is the length of every idempotency key, that of a UUID.
const keyLength = 36

// A caller sends one request after the other over one connection. It writes prepared
// bytes and reads no more of an answer than it checks, so that the load takes as little
// of the machine as can be.
type caller struct {
	conn   net.Conn
	reader *bufio.Reader

	request []byte
	key     []byte // the part of request with the key
	prefix  string // of its keys, which no other caller of any run has
	next    int    // number of its next key

	answer    answer
	latencies []time.Duration
}

// answer is what a caller looks at. Its body is overwritten by the next one.
type answer struct {
	status   int
	replayed bool
	length   int
	body     []byte
}

// newCaller prepares a caller of path; the prefix of its keys must be its own.
func newCaller(path, prefix string) *caller {
	const body = `{"amount":1999,"currency":"eur","customer":"cus_9s6XKzkNRiz8i3","description":"order 4711"}`
	c := &caller{prefix: prefix}
	c.request = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: payments.example\r\nAuthorization: Bearer sk_test_4eC39HqLyjWDarjtT1zdp7dc\r\n"+
		"User-Agent: bench\r\nAccept: application/json\r\nContent-Type: application/json\r\nIdempotency-Key: ", path)
	start := len(c.request)
	c.request = fmt.Appendf(c.request, "%*s\r\nContent-Length: %d\r\n\r\n%s", keyLength, "", len(body), body)
	c.key = c.request[start : start+keyLength]
	return c
}

// connect dials the proxy; everything until close must be over by the deadline.
func (c *caller) connect(addr string, deadline time.Time) error {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.conn, c.reader = conn, bufio.NewReader(conn)
	return conn.SetDeadline(deadline)
}

func (c *caller) close() {
	if c.conn != nil {
		_ = c.conn.Close() // all answers were read
	}
}

// newKey puts a key into the request that was never used before.
func (c *caller) newKey() {
	copy(c.key, c.prefix)
	n := c.next
	for i := keyLength - 1; i >= len(c.prefix); i-- {
		c.key[i] = byte('0' + n%10)
		n /= 10
	}
	c.next++
}

// exchange sends the request and reads the answer into c.answer.
func (c *caller) exchange() error {
	if _, err := c.conn.Write(c.request); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := c.readHead(); err != nil {
		return err
	}
	c.answer.body = append(c.answer.body[:0], make([]byte, c.answer.length)...)
	if _, err := io.ReadFull(c.reader, c.answer.body); err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	return nil
}

// readHead reads the status line and the header fields.
func (c *caller) readHead() error {
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	if len(line) < len("HTTP/1.1 201\r\n") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return fmt.Errorf("not a status line: %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return fmt.Errorf("not a status line: %q", line)
	}
	c.answer = answer{status: status, length: -1, body: c.answer.body}
	for {
		if line, err = c.reader.ReadSlice('\n'); err != nil {
			return fmt.Errorf("read header: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if err := c.readField(line); err != nil {
			return err
		}
	}
	if c.answer.length < 0 {
		return errors.New("the answer has no Content-Length")
	}
	return nil
}

func (c *caller) readField(line []byte) error {
	colon := max(bytes.IndexByte(line, ':'), 0)
	name, value := line[:colon], line[min(colon+1, len(line)):]
	switch colon {
	case len("Content-Length"):
		if bytes.EqualFold(name, []byte("Content-Length")) {
			n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil || n < 0 || n > 1<<20 {
				return fmt.Errorf("bad Content-Length %q", value)
			}
			c.answer.length = n
		}
	case len("X-Idempotent-Replay"):
		if bytes.EqualFold(name, []byte("X-Idempotent-Replay")) {
			c.answer.replayed = string(bytes.TrimSpace(value)) == "true"
		}
	}
	return nil
}

// check says what is wrong with the answer.
func (c *caller) check(replayed bool, body []byte) error {
	switch {
	case c.answer.status != 201:
		return fmt.Errorf("status %d instead of 201: %s", c.answer.status, c.answer.body)
	case c.answer.replayed != replayed:
		return fmt.Errorf("replayed is %v instead of %v", c.answer.replayed, replayed)
	case body != nil && !bytes.Equal(body, c.answer.body):
		return fmt.Errorf("the replay differs: %q instead of %q", c.answer.body, body)
	case body == nil && !bytes.HasPrefix(c.answer.body, []byte(`{"id":"pay_`)):
		return fmt.Errorf("not the upstream's answer: %q", c.answer.body)
	}
	return nil
}
