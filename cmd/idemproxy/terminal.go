package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// isTerminal reports whether somebody may be looking at w, or typing into it.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && !os.SameFile(info, null)
}

// canAsk reports whether there is somebody to answer a question.
func canAsk(cmd *cobra.Command) bool { return isTerminal(cmd.InOrStdin()) }

// ask asks a question on standard error; only a y or yes is one.
func ask(cmd *cobra.Command, question string, args ...any) bool {
	fmt.Fprintf(cmd.ErrOrStderr(), question+" [y/N] ", args...)
	line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // no answer is a no
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

// progress is one line on a terminal that says how far something is; elsewhere nothing.
type progress struct {
	w     io.Writer
	shown bool
	last  time.Time
	every time.Duration
}

func newProgress(w io.Writer) *progress {
	if !isTerminal(w) {
		w = nil
	}
	return &progress{w: w, every: 200 * time.Millisecond, last: time.Now()}
}

func (p *progress) say(format string, args ...any) {
	if p.w == nil || time.Since(p.last) < p.every {
		return
	}
	p.shown, p.last = true, time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
}

// clear takes the line away, for others to be written.
func (p *progress) clear() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
