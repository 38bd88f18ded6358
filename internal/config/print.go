package config

import (
	"encoding"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Print writes the effective configuration as YAML: every setting with the value it
// has, secrets hidden. Without secrets in it, what was printed can be loaded again.
func (c *Config) Print(w io.Writer) error {
	text, err := yaml.MarshalWithOptions(printable(reflect.ValueOf(*c), ""), yaml.IndentSequence(true))
	if err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	_, err = w.Write(text)
	return err
}

// printable turns a value into what a YAML encoder writes as the file would have it.
func printable(v reflect.Value, path string) any {
	t := v.Type()
	if m, ok := v.Interface().(encoding.TextMarshaler); ok && t.Kind() != reflect.Pointer {
		text, err := m.MarshalText()
		if err != nil {
			return "(" + err.Error() + ")"
		}
		return string(text)
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return short(time.Duration(v.Int()))
	case t.Kind() == reflect.Pointer:
		return printable(v.Elem(), path)
	case t.Kind() == reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = printable(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
		return list
	case t.Kind() == reflect.Struct:
		return printableSection(v, path)
	case t.Kind() == reflect.Map:
		table := yaml.MapSlice{}
		for _, key := range v.MapKeys() {
			table = append(table, yaml.MapItem{Key: key.String(), Value: printable(v.MapIndex(key), join(path, key.String()))})
		}
		slices.SortFunc(table, func(x, y yaml.MapItem) int { return strings.Compare(x.Key.(string), y.Key.(string)) })
		return table
	default:
		return v.Convert(basic(t)).Interface()
	}
}

// printableSection leaves out what is not set at all.
func printableSection(v reflect.Value, path string) yaml.MapSlice {
	var section yaml.MapSlice
	for i, name := range fieldNames(v.Type()) {
		if name == "" || inDefaults(path, name) || v.Field(i).Kind() == reflect.Pointer && v.Field(i).IsNil() {
			continue
		}
		section = append(section, yaml.MapItem{Key: name, Value: printable(v.Field(i), join(path, name))})
	}
	return section
}

// basic is the unnamed type below a named one.
func basic(t reflect.Type) reflect.Type {
	switch t.Kind() {
	case reflect.String:
		return reflect.TypeFor[string]()
	case reflect.Bool:
		return reflect.TypeFor[bool]()
	case reflect.Float32, reflect.Float64:
		return reflect.TypeFor[float64]()
	default:
		return reflect.TypeFor[int64]()
	}
}

// short is a duration without its zero parts: 24h, not 24h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
