package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// A node is a YAML value with its place; aliases and merge keys are resolved.
type node struct {
	kind   kind
	origin Origin
	text   string // of a scalar, as it was written, without quotes
	bool   bool   // a scalar that is a plain true or false
	pairs  []pair
	items  []*node
}

type pair struct {
	key    string
	origin Origin
	value  *node
}

// kind is what a node is; its text completes "must be …, not …".
type kind string

const (
	scalar   kind = "a single value"
	null     kind = "nothing"
	mapping  kind = "a section of keys"
	sequence kind = "a list"
	broken   kind = "" // a fault was noted already
)

// get finds a key.
func (n *node) get(key string) (pair, bool) {
	for _, p := range n.pairs {
		if p.key == key {
			return p, true
		}
	}
	return pair{}, false
}

// document parses a file into its tree. A nil node is an empty document.
func document(file string, data []byte) (*node, []Fault) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if f, bad := notText(file, data); bad {
		return nil, []Fault{f}
	}
	docs, fault := parse(file, data)
	if fault != nil {
		return nil, []Fault{*fault}
	}
	t := tree{file: file, anchors: map[string]*node{}}
	if len(docs) == 0 {
		return nil, nil
	}
	root := t.node(docs[0])
	if len(docs) > 1 {
		t.fault(t.origin(docs[1]), "a second document begins here; a configuration is one document")
	}
	return root, t.faults
}

// notText finds the first byte that is not text in UTF-8.
func notText(file string, data []byte) (Fault, bool) {
	line, column := 1, 1
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 || r == 0 {
			return Fault{Origin: Origin{file, line, column}, Message: "not text in UTF-8; save the file as UTF-8"}, true
		}
		column++
		if r == '\n' {
			line, column = line+1, 1
		}
		data = data[size:]
	}
	return Fault{}, false
}

// parse returns the bodies of the documents that have one.
func parse(file string, data []byte) (docs []ast.Node, fault *Fault) {
	defer func() {
		if recover() != nil { // the parser's own bug on some malformed input
			docs, fault = nil, &Fault{Origin: Origin{file, 1, 1}, Message: "not YAML"}
		}
	}()
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		fault = &Fault{Origin: Origin{file, 1, 1}, Message: "not YAML: " + firstLine(err.Error())}
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			at := syntax.Token.Position
			fault.Origin = Origin{file, max(1, at.Line), max(1, at.Column)}
			fault.Message = "not YAML: " + firstLine(syntax.Message)
		}
		if strings.Contains(fault.Message, "'\t'") {
			fault.Message = "not YAML: a tab; indent with spaces"
		}
		return nil, fault
	}
	for _, doc := range f.Docs {
		if _, directive := doc.Body.(*ast.DirectiveNode); doc.Body != nil && !directive {
			docs = append(docs, doc.Body)
		}
	}
	return docs, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// A tree is built from the parser's one.
type tree struct {
	file    string
	anchors map[string]*node
	faults  []Fault
}

func (t *tree) fault(at Origin, format string, args ...any) {
	t.faults = append(t.faults, Fault{Origin: at, Message: fmt.Sprintf(format, args...)})
}

// origin is where a node begins; the parser places a block mapping at its first colon.
func (t *tree) origin(n ast.Node) Origin {
	switch m := n.(type) {
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return t.origin(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return t.origin(m.Key)
	}
	if n.GetToken() == nil || n.GetToken().Position == nil {
		return Origin{t.file, 1, 1}
	}
	at := n.GetToken().Position
	return Origin{t.file, at.Line, at.Column}
}

// node converts a value. What can't be converted is a fault and broken.
func (t *tree) node(n ast.Node) *node {
	out := &node{kind: null, origin: t.origin(n)}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode:
		out.kind, out.pairs = mapping, t.pairs(n.Values)
	case *ast.MappingValueNode:
		out.kind, out.pairs = mapping, t.pairs([]*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out.kind = sequence
		for _, item := range n.Values {
			out.items = append(out.items, t.node(item))
		}
	case *ast.AnchorNode:
		out = t.node(n.Value)
		t.anchors[n.Name.String()] = out
	case *ast.AliasNode:
		return t.alias(n)
	case *ast.StringNode:
		out.kind, out.text = scalar, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = scalar, n.Value.Value
	case *ast.BoolNode:
		out.kind, out.text, out.bool = scalar, strings.ToLower(n.GetToken().Value), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind, out.text = scalar, n.GetToken().Value
	default:
		out.kind = broken
		t.fault(out.origin, "tags and other special YAML are not supported here; write the value alone")
	}
	return out
}

// alias is the node that an anchor before it names.
func (t *tree) alias(n *ast.AliasNode) *node {
	if known, ok := t.anchors[n.Value.String()]; ok {
		return known
	}
	t.fault(t.origin(n), "no anchor of this name stands before its alias")
	return &node{kind: broken, origin: t.origin(n)}
}

// pairs converts the content of a mapping; what was merged in comes last, and only
// where the mapping itself says nothing.
func (t *tree) pairs(values []*ast.MappingValueNode) []pair {
	own := &node{}
	var merged []pair
	for _, v := range values {
		at := t.origin(v.Key)
		if v.Key.IsMergeKey() {
			merged = append(merged, t.merge(t.node(v.Value))...)
			continue
		}
		key, ok := keyText(v.Key)
		if !ok {
			t.fault(at, "not a key; a key is a plain word")
			continue
		}
		value := t.node(v.Value)
		if first, again := own.get(key); again {
			t.fault(at, "%q is given twice, first on line %d; leave one of the two", key, first.origin.Line)
			continue
		}
		own.pairs = append(own.pairs, pair{key, at, value})
	}
	for _, p := range merged {
		if _, known := own.get(p.key); !known {
			own.pairs = append(own.pairs, p)
		}
	}
	return own.pairs
}

// merge lists what a merge key brings; the first of several mappings wins.
func (t *tree) merge(from *node) []pair {
	switch from.kind {
	case mapping:
		return from.pairs
	case sequence:
		var all []pair
		for _, item := range from.items {
			all = append(all, t.merge(item)...)
		}
		return all
	case broken:
		return nil
	case scalar, null:
	}
	t.fault(from.origin, "<< merges a mapping, such as *name, or a list of them")
	return nil
}

// keyText is the text of a key that is a scalar.
func keyText(key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case *ast.MappingKeyNode:
		inner, ok := k.Value.(ast.MapKeyNode)
		if !ok {
			return "", false
		}
		return keyText(inner)
	case *ast.StringNode:
		return k.Value, true
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode:
		return k.GetToken().Value, true
	default:
		return "", false
	}
}
