package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"idemproxy/internal/dedup"
)

const reference = "../../configs/idemproxy.yaml"

// TestShippedConfigurationsAreRight validates everything in configs.
func TestShippedConfigurationsAreRight(t *testing.T) {
	files, err := filepath.Glob("../../configs/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, error %v", files, err)
	}
	for _, file := range files {
		if cfg, err := Load(Sources{File: file}); err != nil {
			t.Error(err)
		} else if warnings := cfg.Warnings(nil); len(warnings) > 0 {
			t.Errorf("%s: %v", file, warnings)
		}
	}
}

// TestReferenceEqualsDefaults proves that the annotated reference tells the truth.
func TestReferenceEqualsDefaults(t *testing.T) {
	got, err := Load(Sources{File: reference})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	route := dedup.DefaultRule()
	route.Name, route.Path = "payments", "/api/payments"
	want.Routes = []dedup.Rule{route}
	want.origins = got.origins
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

// TestReferenceNamesEverySetting finds settings that the reference leaves out. What
// can't be written with its default must stand in a comment.
func TestReferenceNamesEverySetting(t *testing.T) {
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(Sources{File: reference})
	if err != nil {
		t.Fatal(err)
	}
	leaves(reflect.ValueOf(cfg).Elem(), "", func(path string, field reflect.Value) {
		name := path[strings.LastIndex(path, ".")+1:]
		switch {
		case strings.HasPrefix(path, "defaults."):
		case field.Kind() == reflect.Pointer:
			if !strings.Contains(string(text), "\n    # "+name+": ") {
				t.Errorf("%s is in no comment", path)
			}
		case cfg.Origin(path) == "default":
			t.Errorf("%s is missing", path)
		}
	})
}
