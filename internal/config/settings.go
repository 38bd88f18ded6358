package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
)

// A Setting is one effective value, for people.
type Setting struct {
	// Path names it below the section it was asked of, such as fingerprint.body.
	Path string `json:"path"`
	// Value is what a file would have; secrets are hidden.
	Value any `json:"value"`
	// From is where it was set; see Config.Origin.
	From string `json:"from"`
}

// RouteSettings are the effective settings of a route, in the order of the reference.
func (c *Config) RouteSettings(route int) []Setting {
	section := fmt.Sprintf("routes[%d]", route)
	var all []Setting
	leaves(reflect.ValueOf(c).Elem().FieldByName("Routes").Index(route), section, func(path string, field reflect.Value) {
		if field.Kind() == reflect.Pointer && field.IsNil() {
			return
		}
		value := printable(field, path)
		if table, ok := value.(yaml.MapSlice); ok {
			value = table.ToMap()
		}
		all = append(all, Setting{strings.TrimPrefix(path, section+"."), value, c.Origin(path)})
	})
	return all
}
