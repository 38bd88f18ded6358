package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestItMeasures(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-stores", "memory,file", "-live", "0,300", "-callers", "2", "-time", "20ms", "-dir", t.TempDir()}, &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory", "file"} {
		if n := strings.Count(out.String(), "\n"+name+" "); n != 2 {
			t.Errorf("%d lines of %s, want one for each number of records:\n%s", n, name, &out)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{
		{"-stores", "floppy"}, {"-callers", "0"}, {"-live", "-1"}, {"-live", "many"}, {"-time", "0s"}, {"more"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
