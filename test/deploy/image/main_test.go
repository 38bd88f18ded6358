package image

import (
	"fmt"
	"os"
	"testing"
)

// scratch is a folder for all tests, which other users may enter.
var scratch string

func TestMain(m *testing.M) {
	confineIfAsked()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("/tmp", "idemproxy-image-"); err == nil {
		err = os.Chmod(scratch, 0o755)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}
