package dedup

import (
	"bytes"
	"encoding/binary"
	"hash"
	"mime"
	"slices"
	"strings"
)

// maxFields is how many fields an urlencoded form may have to be compared by them: each
// takes more memory than its two bytes.
const maxFields = 10_000

// maxDisposition is how long the line may be that names a part, for a form to be read: it
// takes much longer to parse than any other byte of a body.
const maxDisposition = 8 << 10

// The types of a form, as HTML sends it.
const (
	typeURLEncoded = "application/x-www-form-urlencoded"
	typeMultipart  = "multipart/form-data"
)

// writeForm writes the fields and files of a form, sorted by name, those of one name in
// their order, each byte for byte. It reports false, and has written nothing, when the
// body is no form that all its readers understand in the same way.
func writeForm(h hash.Hash, req Request) bool {
	switch media, boundary := formType(req.Header); media {
	case typeURLEncoded:
		if bytes.Count(req.Body, []byte("&")) >= maxFields {
			return false
		}
		fields, ok := sortedQuery(string(req.Body))
		if !ok {
			return false
		}
		h.Write(binary.AppendUvarint([]byte{tagForm}, uint64(len(fields))))
		for _, f := range fields {
			writeBytes(h, tagForm, []byte(f.raw))
		}
		return true
	case typeMultipart:
		parts, ok := multipartForm(req.Body, boundary)
		if !ok {
			return false
		}
		slices.SortStableFunc(parts, func(a, b formPart) int { return strings.Compare(a.name, b.name) })
		h.Write(binary.AppendUvarint([]byte{tagParts}, uint64(len(parts))))
		for _, p := range parts {
			h.Write(p.canonicalHead())
			writeBytes(h, tagParts, p.content)
		}
		return true
	default:
		return false
	}
}

// formType returns the type of a form and, of a multipart one, its boundary; "" if the
// request says that it is something else, or says it twice.
func formType(header Header) (media, boundary string) {
	values := header("Content-Type")
	if len(values) != 1 {
		return "", ""
	}
	media, params, err := mime.ParseMediaType(values[0])
	switch {
	case err != nil, media == typeMultipart && params["boundary"] == "":
		return "", ""
	default:
		return media, params["boundary"]
	}
}

// A formPart is a field or a file of a multipart form (RFC 7578).
type formPart struct {
	name    string
	file    bool
	head    []headLine
	content []byte
}

// A headLine is a line of the head of a part, its name in lower case.
type headLine struct{ name, value string }

// multipartForm returns the parts of a multipart form in their order. It is strict where
// readers are known to differ: there may be nothing before the first boundary and after
// the last, no other end of a line than CRLF, and no folded line. Whoever sends forms
// sends them so.
func multipartForm(body []byte, boundary string) ([]formPart, bool) {
	delimiter := []byte("\r\n--" + boundary)
	rest, ok := bytes.CutPrefix(body, delimiter[2:])
	if !ok {
		return nil, false
	}
	var parts []formPart
	for {
		if end, last := bytes.CutPrefix(rest, []byte("--")); last {
			return parts, len(end) == 0 || string(end) == "\r\n"
		}
		var raw []byte
		if rest, ok = bytes.CutPrefix(rest, []byte("\r\n")); ok {
			raw, rest, ok = bytes.Cut(rest, delimiter)
		}
		if !ok {
			return nil, false
		}
		part, ok := parsePart(raw)
		if !ok {
			return nil, false
		}
		parts = append(parts, part)
	}
}

func parsePart(raw []byte) (p formPart, ok bool) {
	head, content, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		return p, false
	}
	p.content = content
	dispositions := 0
	for line := range strings.SplitSeq(string(head), "\r\n") {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) || strings.ContainsFunc(value, isControl) {
			return p, false
		}
		name = strings.ToLower(name)
		p.head = append(p.head, headLine{name, strings.Trim(value, " \t")})
		if name != "content-disposition" {
			continue
		}
		if len(value) > maxDisposition {
			return p, false
		}
		disposition, params, err := mime.ParseMediaType(value)
		if err != nil || disposition != "form-data" {
			return p, false
		}
		if p.name, ok = params["name"]; !ok {
			return p, false
		}
		_, p.file = params["filename"]
		dispositions++
	}
	return p, dispositions == 1
}

// isControl reports what no header's value may have (RFC 9110, 5.5): readers refuse it, take
// it out, or keep it.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }

// canonicalHead has the lines of the head sorted by name, those of one name in their order.
func (p *formPart) canonicalHead() []byte {
	slices.SortStableFunc(p.head, func(a, b headLine) int { return strings.Compare(a.name, b.name) })
	b := binary.AppendUvarint([]byte{tagHeader}, uint64(len(p.head)))
	for _, line := range p.head {
		b = appendPart(appendPart(b, line.name), line.value)
	}
	return b
}
