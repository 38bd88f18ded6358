package store_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"idemproxy/internal/dedup"
)

// kill -9 in the middle of everything loses nothing that was acknowledged.
func TestFileSurvivesKill(t *testing.T) {
	path := newFile(t)
	said := make(map[string]string) // ID to claim or done, the latter last
	for range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fileClaimer+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if words := strings.Fields(lines.Text()); len(words) == 3 && len(words[2]) == dedup.TokenLength {
				if said[words[1]] != "done" {
					said[words[1]] = words[0]
				}
			}
			if n == 300 {
				must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait()
	}
	s := openFile(t, path, nil)
	done := 0
	for id, what := range said {
		req := request(time.Hour)
		req.ID = dedup.ID(id)
		found, err := s.Claim(t.Context(), req)
		must(t, err)
		switch {
		case found.State == dedup.StateCompleted && string(found.Blob) == id:
			done++
		case what == "done", found.State != dedup.StateInProgress && found.State != dedup.StateCompleted:
			t.Errorf("%s was acknowledged (%s), found in state %d", id, what, found.State)
		}
	}
	if len(said) < 300 || done == 0 {
		t.Errorf("%d acknowledged, %d of them completed: too few to tell", len(said), done)
	}
}
