package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A field is a header or trailer line.
type field struct{ name, value string }

// A response is an answer as it stands on the wire: its fields in the order and the
// number in which they came, nothing decoded but the chunks of the body.
type response struct {
	request  request
	interim  []int // the statuses before it, such as 103
	line     string
	status   int
	fields   []field
	body     []byte
	trailers []field
}

func (r *response) values(name string) []string {
	var values []string
	for _, f := range r.fields {
		if strings.EqualFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}

func (r *response) get(name string) string {
	if v := r.values(name); len(v) > 0 {
		return v[0]
	}
	return ""
}

func (r *response) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, r.line)
	for _, f := range r.fields {
		fmt.Fprintf(&b, "%s: %s\n", f.name, f.value)
	}
	fmt.Fprintf(&b, "\n%.600q", r.body)
	for _, f := range r.trailers {
		fmt.Fprintf(&b, "\n%s: %s", f.name, f.value)
	}
	return b.String()
}

// wire reads responses. net/http's client reads them too, but keeps no order of the
// fields, and forgives what it should not see at all.
type wire struct{ r *bufio.Reader }

func newWire(r io.Reader) *wire { return &wire{bufio.NewReader(r)} }

// response reads the whole answer to a request.
func (w *wire) response(req request) (*response, error) {
	res, err := w.head(req)
	if err != nil {
		return nil, err
	}
	return res, w.rest(res)
}

// head reads an answer up to its body.
func (w *wire) head(req request) (*response, error) {
	res := &response{request: req}
	for {
		line, err := w.text()
		if err != nil {
			return nil, fmt.Errorf("read status line: %w", err)
		}
		proto, rest, _ := strings.Cut(line, " ")
		code, _, _ := strings.Cut(rest, " ")
		status, err := strconv.Atoi(code)
		if err != nil || !strings.HasPrefix(proto, "HTTP/1.") {
			return nil, fmt.Errorf("not a status line: %q", line)
		}
		res.line, res.status = line, status
		if res.fields, err = w.section(); err != nil {
			return nil, fmt.Errorf("read header: %w", err)
		}
		if status >= 200 || status == 101 {
			return res, nil
		}
		res.interim = append(res.interim, status)
	}
}

// rest reads the body and the trailers.
func (w *wire) rest(res *response) (err error) {
	switch {
	case res.request.method == "HEAD" || res.status == 204 || res.status == 304 || res.status == 101:
	case strings.EqualFold(res.get("Transfer-Encoding"), "chunked"):
		var body bytes.Buffer
		for more := true; more && err == nil; {
			more, err = w.chunk(&body)
		}
		res.body = body.Bytes()
		if err == nil {
			res.trailers, err = w.section()
		}
	case res.get("Content-Length") != "":
		var n int
		if n, err = strconv.Atoi(res.get("Content-Length")); err != nil {
			break
		}
		res.body = make([]byte, n)
		_, err = io.ReadFull(w.r, res.body)
	default:
		res.body, err = io.ReadAll(w.r)
	}
	if err != nil {
		return fmt.Errorf("read body of %q: %w", res.line, err)
	}
	return nil
}

// chunk reads a chunk of a body; the last one is empty.
func (w *wire) chunk(into *bytes.Buffer) (more bool, err error) {
	line, err := w.text()
	if err != nil {
		return false, err
	}
	n, err := strconv.ParseUint(line, 16, 31)
	if err != nil || n == 0 {
		return false, err
	}
	if _, err := io.CopyN(into, w.r, int64(n)); err != nil {
		return false, err
	}
	if end, err := w.text(); err != nil || end != "" {
		return false, errors.Join(err, fmt.Errorf("a chunk ends with %q", end))
	}
	return true, nil
}

// section reads fields up to an empty line.
func (w *wire) section() ([]field, error) {
	var fields []field
	for {
		line, err := w.text()
		if err != nil || line == "" {
			return fields, err
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("not a header line: %q", line)
		}
		fields = append(fields, field{name, strings.TrimSpace(value)})
	}
}

func (w *wire) text() (string, error) {
	line, err := w.r.ReadString('\n')
	if err != nil {
		return "", errors.Join(err, wasCut(line))
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}

func wasCut(line string) error {
	if line == "" {
		return nil
	}
	return fmt.Errorf("the last line is cut: %q", line)
}
