package dedup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"unicode/utf8"
)

// maxJSONDepth is how deep a JSON text may be nested to be read as one.
const maxJSONDepth = 200

// maxJSONObject is how long an object may stand in the canonical form; the digest of a
// longer one stands for it, so that it isn't moved again with each object around it.
const maxJSONObject = 1024

// A jsonText reads a JSON text (RFC 8259) and writes its canonical form: two texts have
// the same one if and only if they are the same by value. Members are sorted by name,
// numbers keep their literal text, and names and strings stand decoded, with their length
// before them, so that nothing is taken for another.
//
// encoding/json is no help here: it makes of every lone surrogate and every broken byte
// the same U+FFFD, and of two members of one name the last.
type jsonText struct {
	in      []byte
	at      int
	out     []byte
	members []jsonMember // of the objects that are open, the innermost ones last
	spare   []byte

	doubtful bool // one name twice in an object, or half a surrogate pair: readers differ in what they make of it

	picks     bool   // keep what the pointer names; see jsonAt
	picked    []byte // its canonical form
	ambiguous bool   // there are several of them
}

// A jsonMember is where a member of an object stands in the canonical form.
type jsonMember struct {
	start, value, end int
	leftOut           bool
}

// jsonValue returns the canonical form of a JSON text without what the pointers name. It
// reports false for what isn't JSON, for what is nested too deep, and for what is JSON
// that its readers understand differently.
func jsonValue(text []byte, pointers []string) ([]byte, bool) {
	t := jsonText{in: text, out: make([]byte, 0, len(text))}
	if !t.read(pointers) || t.doubtful {
		return nil, false
	}
	return t.out, true
}

// jsonAt returns the canonical form of the string or number that a pointer names, nil if
// there is none, and whether the text has several in its place.
func jsonAt(text []byte, pointer string) (picked []byte, ambiguous bool) {
	t := jsonText{in: text, picks: true}
	if !t.read([]string{pointer}) {
		return nil, false
	}
	return t.picked, t.ambiguous
}

// scalar is the text of a picked string or number.
func scalar(picked []byte) []byte {
	_, n := binary.Uvarint(picked[1:])
	return picked[1+n:]
}

func (t *jsonText) read(pointers []string) bool {
	return utf8.Valid(t.in) && t.value(0, pointers) && t.peek() == 0 && t.at == len(t.in)
}

// peek is the next byte that is no white space; 0 at the end.
func (t *jsonText) peek() byte {
	for ; t.at < len(t.in); t.at++ {
		switch c := t.in[t.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take reads this byte.
func (t *jsonText) take(c byte) bool {
	if t.peek() != c {
		return false
	}
	t.at++
	return true
}

// put writes a string or number.
func (t *jsonText) put(kind byte, text []byte) {
	t.out = binary.AppendUvarint(append(t.out, kind), uint64(len(text)))
	t.out = append(t.out, text...)
}

func (t *jsonText) value(depth int, pointers []string) bool {
	switch t.peek() {
	case '{':
		return depth < maxJSONDepth && t.object(depth, pointers)
	case '[':
		return depth < maxJSONDepth && t.array(depth, pointers)
	case '"':
		text, ok := t.text()
		t.put('"', text)
		return ok
	case 't':
		return t.word("true")
	case 'f':
		return t.word("false")
	case 'n':
		return t.word("null")
	default:
		return t.number()
	}
}

func (t *jsonText) word(word string) bool {
	if !bytes.HasPrefix(t.in[t.at:], []byte(word)) {
		return false
	}
	t.at += len(word)
	t.out = append(t.out, word[0])
	return true
}

func (t *jsonText) number() bool {
	start := t.at
	t.skip('-', '-')
	ok := t.skip('0', '0') || t.digits()
	if ok && t.skip('.', '.') {
		ok = t.digits()
	}
	if ok && t.skip('e', 'E') {
		t.skip('+', '-')
		ok = t.digits()
	}
	t.put('0', t.in[start:t.at])
	return ok
}

// skip reads one of two bytes if it is the next.
func (t *jsonText) skip(a, b byte) bool {
	if t.at == len(t.in) || t.in[t.at] != a && t.in[t.at] != b {
		return false
	}
	t.at++
	return true
}

// digits reads one digit or more.
func (t *jsonText) digits() bool {
	from := t.at
	for t.at < len(t.in) && t.in[t.at] >= '0' && t.in[t.at] <= '9' {
		t.at++
	}
	return t.at > from
}

func (t *jsonText) array(depth int, pointers []string) bool {
	t.at++
	t.out = append(t.out, '[')
	var index [20]byte
	for i := 0; t.peek() != ']'; i++ {
		if i > 0 && !t.take(',') {
			return false
		}
		start := len(t.out)
		named, below := follow(pointers, strconv.AppendInt(index[:0], int64(i), 10))
		if !t.value(depth+1, below) {
			return false
		}
		if named {
			t.leaveOut(start)
		}
	}
	t.at++
	t.out = append(t.out, ']')
	return true
}

func (t *jsonText) object(depth int, pointers []string) bool {
	t.at++
	start, first, onTheWay := len(t.out), len(t.members), 0
	t.out = append(t.out, '{')
	for n := 0; t.peek() != '}'; n++ {
		if n > 0 && !t.take(',') || t.peek() != '"' {
			return false
		}
		m := jsonMember{start: len(t.out)}
		name, ok := t.text()
		t.put('"', name)
		m.value = len(t.out)
		named, below := follow(pointers, name)
		if !ok || !t.take(':') || !t.value(depth+1, below) {
			return false
		}
		if named || len(below) > 0 {
			onTheWay++
		}
		if named {
			t.leaveOut(m.value)
			m.leftOut = true
		}
		m.end = len(t.out)
		t.members = append(t.members, m)
	}
	t.at++
	t.ambiguous = t.ambiguous || t.picks && onTheWay > 1
	t.arrange(start+1, t.members[first:])
	t.members = t.members[:first]
	t.out = append(t.out, '}')
	if len(t.out)-start > maxJSONObject {
		sum := sha256.Sum256(t.out[start:])
		t.out = append(append(t.out[:start], '#'), sum[:]...)
	}
	return true
}

// arrange brings the members of an object, which stand at the end of the canonical form,
// into the order of their names, and takes those away that are left out.
func (t *jsonText) arrange(start int, members []jsonMember) {
	byName := func(a, b jsonMember) int {
		return bytes.Compare(t.out[a.start:a.value], t.out[b.start:b.value])
	}
	asItIs := slices.IsSortedFunc(members, byName)
	if !asItIs {
		slices.SortFunc(members, byName)
	}
	for i, m := range members {
		asItIs = asItIs && !m.leftOut
		t.doubtful = t.doubtful || i > 0 && byName(members[i-1], m) == 0
	}
	if asItIs {
		return
	}
	t.spare = t.spare[:0]
	for _, m := range members {
		if !m.leftOut {
			t.spare = append(t.spare, t.out[m.start:m.end]...)
		}
	}
	t.out = append(t.out[:start], t.spare...)
}

// leaveOut takes away the value that was written from start on: a pointer names it.
func (t *jsonText) leaveOut(start int) {
	if kind := t.out[start]; t.picks && (kind == '"' || kind == '0') {
		t.picked = bytes.Clone(t.out[start:])
	}
	t.out = t.out[:start]
}
