package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"idemproxy/internal/dedup"
)

// setScalar reads text into a field by the field's type. Its errors don't repeat the
// text: it may be a secret.
func setScalar(field reflect.Value, text string) error {
	if field.Kind() == reflect.Pointer {
		inner := reflect.New(field.Type().Elem())
		if err := setScalar(inner.Elem(), text); err != nil {
			return err
		}
		field.Set(inner)
		return nil
	}
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch {
	case field.Type() == reflect.TypeFor[time.Duration]():
		return setDuration(field, text)
	case field.Kind() == reflect.String:
		field.SetString(text)
	case field.Kind() == reflect.Bool:
		return setBool(field, text)
	case field.CanInt():
		n, err := strconv.ParseInt(text, 10, field.Type().Bits())
		if err != nil {
			return errors.New("must be a whole number, such as 100")
		}
		field.SetInt(n)
	case field.CanFloat():
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return errors.New("must be a number, such as 0.5")
		}
		field.SetFloat(f)
	default:
		return fmt.Errorf("a %s can't be configured", field.Type())
	}
	return nil
}

func setBool(field reflect.Value, text string) error {
	if text != "true" && text != "false" {
		return errors.New("must be true or false")
	}
	field.SetBool(text == "true")
	return nil
}

func setDuration(field reflect.Value, text string) error {
	d, err := time.ParseDuration(text)
	if err == nil {
		field.SetInt(int64(d))
		return nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return errors.New("a duration needs a unit, such as 30s, 15m or 24h")
	}
	return errors.New("not a duration; the units are h, m, s and ms, such as 24h, 1m30s or 500ms")
}

// setList reads a list of scalars separated by commas, as environment and flags have it.
func setList(field reflect.Value, text string) error {
	list := reflect.Zero(field.Type())
	if strings.TrimSpace(text) != "" {
		for item := range strings.SplitSeq(text, ",") {
			element := reflect.New(field.Type().Elem()).Elem()
			if err := setScalar(element, strings.TrimSpace(item)); err != nil {
				return err
			}
			list = reflect.Append(list, element)
		}
	}
	field.Set(list)
	return nil
}

// setTable reads a map from pairs such as a=b, separated by commas.
func setTable(field reflect.Value, text string) error {
	table := reflect.Zero(field.Type())
	if strings.TrimSpace(text) != "" {
		table = reflect.MakeMap(field.Type())
		for item := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(item, "=")
			if !ok {
				return errors.New("must be pairs, such as a=b,c=d")
			}
			element := reflect.New(field.Type().Elem()).Elem()
			if err := setScalar(element, strings.TrimSpace(value)); err != nil {
				return err
			}
			table.SetMapIndex(reflect.ValueOf(strings.TrimSpace(key)).Convert(field.Type().Key()), element)
		}
	}
	field.Set(table)
	return nil
}

// isScalar reports whether a type is written as one value.
func isScalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		return isScalar(t.Elem())
	}
	text := reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
	return text || t.Kind() != reflect.Struct && t.Kind() != reflect.Slice && t.Kind() != reflect.Map
}

// isSections reports whether a type is a list of sections, as routes are.
func isSections(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && !isScalar(t) && !isScalar(t.Elem())
}

// isNames reports whether a list may also be written as its only element.
func isNames(t reflect.Type) bool { return t == reflect.TypeFor[dedup.Names]() }

// clone is a deep copy of a configuration's value.
func clone(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(clone(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(clone(v.Index(i)))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if out.Field(i).CanSet() {
				out.Field(i).Set(clone(v.Field(i)))
			}
		}
	default: // copied already
	}
	return out
}
