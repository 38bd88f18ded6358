package config

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// watched begins to watch a file.
func watched(t *testing.T, file string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	changed, err := Watch(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func notice(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(20 * time.Second):
		t.Fatal("no notice of the change")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

func TestWatch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	put(t, file, "one")
	changed := watched(t, file)
	put(t, file, "two")
	notice(t, changed)
	put(t, file+".new", "three")
	must(t, os.Rename(file+".new", file))
	notice(t, changed)
	must(t, os.Remove(file))
	notice(t, changed)
	put(t, file, "three")
	notice(t, changed)
}

// TestWatchOfSymlinks: what a ConfigMap's volume does, and a link to another folder.
func TestWatchOfSymlinks(t *testing.T) {
	dir := t.TempDir()
	volume := func(version, text string) {
		must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
		put(t, filepath.Join(dir, version, "c.yaml"), text)
		must(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	volume("..1", "one")
	must(t, os.Symlink(filepath.Join("..data", "c.yaml"), filepath.Join(dir, "c.yaml")))
	link := filepath.Join(t.TempDir(), "link.yaml")
	must(t, os.Symlink(filepath.Join(dir, "c.yaml"), link))
	mounted, linked := watched(t, filepath.Join(dir, "c.yaml")), watched(t, link)
	put(t, filepath.Join(dir, "..1", "c.yaml"), "one, edited")
	notice(t, mounted)
	notice(t, linked)
	volume("..2", "two")
	must(t, os.RemoveAll(filepath.Join(dir, "..1")))
	notice(t, mounted)
	volume("..3", "three")
	must(t, os.RemoveAll(filepath.Join(dir, "..2")))
	notice(t, mounted)
}

// TestWatchKeepsQuiet: of what happens beside the file, and of writes that change nothing,
// nobody hears; and nobody hears of a file that is half written.
func TestWatchKeepsQuiet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	put(t, file, "one")
	changed := watched(t, file)
	put(t, file+".swp", "two")
	put(t, file, "one")
	must(t, os.Chmod(file, 0o400))
	must(t, os.Chmod(file, 0o600))
	f, err := os.Create(file)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("three")
	must(t, err)
	notice(t, changed)
	select {
	case <-changed:
		t.Error("a second notice")
	case <-time.After(5 * settle):
	}
}

func TestWatchWithoutAFolder(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := Watch(ctx, filepath.Join(t.TempDir(), "none", "c.yaml")); err == nil {
		t.Error("a folder that is not there is watched")
	}
}
