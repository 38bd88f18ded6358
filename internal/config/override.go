package config

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// override writes environment and flags over everything at and below a value. A viper
// decides between the two; it is given each key explicitly and sees no file, since it
// folds case, splits keys at dots and guesses types.
func (d *decoder) override(value reflect.Value, path string, flags map[string]*pflag.Flag) {
	v := viper.NewWithOptions(viper.KeyDelimiter("\n"))
	v.AllowEmptyEnv(true)
	leaves(value, path, func(path string, field reflect.Value) {
		origin := Origin{Source: "environment " + EnvName(path)}
		_ = v.BindEnv(path, EnvName(path)) // fails without a key only
		if flag := flags[path]; flag != nil {
			_ = v.BindPFlag(path, flag) // fails without a flag only
			if flag.Changed {
				origin = Origin{Source: "flag --" + flag.Name}
			}
		}
		if !v.IsSet(path) {
			return
		}
		if err := setText(field, v.GetString(path)); err != nil {
			d.fault(origin, path, "%v", err)
			return
		}
		maps.DeleteFunc(d.origins, func(p string, _ Origin) bool { return strings.HasPrefix(p, path+"[") })
		maps.DeleteFunc(d.failed, func(p string, _ bool) bool { return p == path || strings.HasPrefix(p, path+"[") })
		d.origins[path] = origin
	})
}

// setText reads a field of any type from one line.
func setText(field reflect.Value, text string) error {
	switch {
	case isScalar(field.Type()):
		return setScalar(field, text)
	case field.Kind() == reflect.Map:
		return setTable(field, text)
	default:
		return setList(field, text)
	}
}

// leaves visits every setting at and below a value: what has a single value or is a
// list of such.
func leaves(value reflect.Value, path string, visit func(string, reflect.Value)) {
	switch {
	case isSections(value.Type()):
		for i := range value.Len() {
			leaves(value.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case value.Kind() == reflect.Struct && !isScalar(value.Type()):
		for i, name := range fieldNames(value.Type()) {
			if name != "" && !inDefaults(path, name) {
				leaves(value.Field(i), join(path, name), visit)
			}
		}
	default:
		visit(path, value)
	}
}

// inDefaults reports whether a key is one that defaults doesn't have.
func inDefaults(path, name string) bool {
	if path != "defaults" {
		return false
	}
	for _, own := range ownKeys() {
		if name == own {
			return true
		}
	}
	return false
}

// EnvName is the environment variable of a setting: routes[0].ttl is
// IDEMPROXY_ROUTES_0_TTL.
func EnvName(path string) string {
	return "IDEMPROXY_" + strings.ToUpper(strings.NewReplacer("[", "_", "].", "_", "]", "", ".", "_").Replace(path))
}
