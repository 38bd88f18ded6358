package main

import (
	"os"
	"syscall"
	"testing"
)

func TestSecondSignalAborts(t *testing.T) {
	aborted := make(chan struct{})
	ctx, stop := untilSignal(t.Context(), func() { close(aborted) })
	defer stop()
	send := func(s syscall.Signal) {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGTERM)
	<-ctx.Done()
	select {
	case <-aborted:
		t.Fatal("the first signal aborts")
	default:
	}
	send(syscall.SIGINT)
	<-aborted
}
