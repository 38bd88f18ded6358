package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A decoder writes a document over a Config that holds the defaults.
type decoder struct {
	lookup  func(string) (string, bool)
	element func(reflect.Type) reflect.Value // what an element of a list of sections starts from
	origins map[string]Origin                // where each path was set
	failed  map[string]bool                  // the paths that kept what they had
	faults  []Fault
}

// fault notes what is wrong at a path, and that it was not set.
func (d *decoder) fault(at Origin, path, format string, args ...any) {
	d.failed[path] = true
	d.faults = append(d.faults, Fault{at, path, fmt.Sprintf(format, args...)})
}

// decode writes a node into a field.
func (d *decoder) decode(n *node, field reflect.Value, path string) {
	t := field.Type()
	switch {
	case n.kind == broken:
		d.failed[path] = true
	case n.kind == null && (isSections(t) || t.Kind() == reflect.Struct && !isScalar(t)):
		return // a section of which all keys are commented out
	case n.kind == null:
		d.fault(n.origin, path, "has no value; give one, or leave the key out for the default")
	case isScalar(t):
		d.scalar(n, field, path)
	case t.Kind() == reflect.Slice:
		d.list(n, field, path)
	case t.Kind() == reflect.Map:
		d.table(n, field, path)
	default:
		d.section(n, field, path)
	}
}

// section writes a mapping into a struct.
func (d *decoder) section(n *node, field reflect.Value, path string) {
	if n.kind != mapping {
		d.fault(n.origin, path, "must be %s, not %s", mapping, n.kind)
		return
	}
	d.origins[path] = n.origin
	names := fieldNames(field.Type())
	for _, p := range n.pairs {
		at := join(path, p.key)
		i := slices.Index(names, p.key)
		if i < 0 || p.key == "" { // "" stands for the fields that are not for the file
			d.unknown(p, at, names)
			continue
		}
		d.decode(p.value, field.Field(i), at)
	}
}

// unknown says which key was probably meant.
func (d *decoder) unknown(p pair, path string, names []string) {
	known := slices.DeleteFunc(slices.Sorted(slices.Values(names)), func(s string) bool { return s == "" })
	switch meant := nearest(p.key, known); {
	case meant != "":
		d.fault(p.origin, path, "unknown key; did you mean %s?", meant)
	case len(known) <= 10:
		d.fault(p.origin, path, "unknown key; the keys here are %s", strings.Join(known, ", "))
	default:
		d.fault(p.origin, path, "unknown key")
	}
}

// list writes a sequence into a slice; the elements that were there are gone.
func (d *decoder) list(n *node, field reflect.Value, path string) {
	if n.kind == scalar && isNames(field.Type()) {
		n = &node{kind: sequence, origin: n.origin, items: []*node{n}}
	}
	if n.kind != sequence {
		d.fault(n.origin, path, "must be %s, such as [a, b], not %s", sequence, n.kind)
		return
	}
	d.origins[path] = n.origin
	out := reflect.Zero(field.Type()) // an empty list is nil: no check can tell [] from no list
	if len(n.items) > 0 {
		out = reflect.MakeSlice(field.Type(), len(n.items), len(n.items))
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isSections(field.Type()) {
			out.Index(i).Set(d.element(field.Type().Elem()))
			d.origins[at] = item.origin
		}
		if item.kind == null {
			d.fault(item.origin, at, "has no value; give one, or leave the element out")
			continue
		}
		d.decode(item, out.Index(i), at)
	}
	field.Set(out)
}

// table writes a mapping with keys of the user's choice into a map; what was there is gone.
func (d *decoder) table(n *node, field reflect.Value, path string) {
	if n.kind != mapping {
		d.fault(n.origin, path, "must be %s, not %s", mapping, n.kind)
		return
	}
	d.origins[path] = n.origin
	out := reflect.Zero(field.Type()) // an empty map is nil: no check can tell {} from none
	if len(n.pairs) > 0 {
		out = reflect.MakeMap(field.Type())
	}
	for _, p := range n.pairs {
		value := reflect.New(field.Type().Elem()).Elem()
		d.decode(p.value, value, join(path, p.key))
		out.SetMapIndex(reflect.ValueOf(p.key).Convert(field.Type().Key()), value)
	}
	field.Set(out)
}

// scalar writes a single value into a field.
func (d *decoder) scalar(n *node, field reflect.Value, path string) {
	if n.kind != scalar {
		d.fault(n.origin, path, "must be %s, not %s", scalar, n.kind)
		return
	}
	if n.bool && field.Kind() == reflect.String {
		d.fault(n.origin, path, "must be text, not true or false; put it in quotes if it is meant so")
		return
	}
	text, err := expand(n.text, d.lookup)
	if err != nil {
		d.fault(n.origin, path, "%v", err)
		return
	}
	if err := setScalar(field, text); err != nil {
		if text != n.text {
			err = fmt.Errorf("%w (after ${…} was expanded)", err)
		}
		d.fault(n.origin, path, "%v", err)
		return
	}
	d.origins[path] = n.origin
}

// fieldNames are the keys of a struct's fields, in their order; "" is not for the file.
func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if t.Field(i).IsExported() && name != "-" {
			names[i] = name
		}
	}
	return names
}

// join is the path of a key below another.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
