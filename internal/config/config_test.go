package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFixtures loads every testdata/*.good.yaml and *.bad.yaml: what a good one means and
// what a bad one gets told stands beside it in .want. Lines "# env: A=b" set variables.
func TestFixtures(t *testing.T) {
	t.Chdir("testdata")
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			setFixtureEnv(t, file)
			cfg, err := Load(Sources{File: file})
			var got bytes.Buffer
			switch bad := (*Error)(nil); {
			case errors.As(err, &bad):
				got.WriteString(bad.Error() + "\n")
			case err != nil:
				t.Fatal(err)
			default:
				if err := cfg.Print(&got); err != nil {
					t.Fatal(err)
				}
			}
			if isBad := strings.HasSuffix(file, ".bad.yaml"); isBad != (err != nil) {
				t.Errorf("wrong verdict:\n%s", got.String())
			}
			golden(t, file+".want", got.Bytes())
			if strings.Contains(got.String(), "hunter2") || strings.Contains(got.String(), "word@") {
				t.Error("a secret was printed")
			}
		})
	}
}

func setFixtureEnv(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if assignment, ok := strings.CutPrefix(line, "# env: "); ok {
			name, value, _ := strings.Cut(strings.TrimSuffix(assignment, "\n"), "=")
			t.Setenv(name, strings.ReplaceAll(value, `\n`, "\n"))
		}
	}
}

func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" { // read the difference before it is committed
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
