package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Changes returns the paths of the settings that have another value in next, wherever they
// were given, in the order of the reference; of a list that became longer or shorter it is
// the list's own. Defaults are no settings of their own: routes have taken them over.
func (c *Config) Changes(next *Config) []string {
	var paths []string
	differences(reflect.ValueOf(*c), reflect.ValueOf(*next), "", func(path string) { paths = append(paths, path) })
	return slices.DeleteFunc(paths, func(path string) bool { return within("defaults", path) })
}

// Reloadable reports whether a setting can change while the program serves; all others
// need a restart.
func Reloadable(path string) bool {
	return slices.ContainsFunc([]string{"routes", "limits", "log.level", "log.access"}, func(section string) bool { return within(section, path) })
}

// within reports whether a path is that of a section or of something in it.
func within(section, path string) bool {
	rest, ok := strings.CutPrefix(path, section)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// differences visits the settings at and below a path that differ.
func differences(x, y reflect.Value, path string, visit func(string)) {
	t := x.Type()
	switch {
	case isSections(t) && x.Len() == y.Len():
		for i := range x.Len() {
			differences(x.Index(i), y.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case t.Kind() == reflect.Struct && !isScalar(t):
		for i, name := range fieldNames(t) {
			if name != "" {
				differences(x.Field(i), y.Field(i), join(path, name), visit)
			}
		}
	case !reflect.DeepEqual(x.Interface(), y.Interface()):
		visit(path)
	}
}
