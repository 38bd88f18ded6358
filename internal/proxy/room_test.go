package proxy

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// asked is what became of a wait: nil while it goes on.
type asked struct {
	mu  sync.Mutex
	got *bool
}

func ask(ctx context.Context, r *room, n, has int64) *asked {
	a := &asked{}
	go func() {
		got := r.wait(ctx, n, has)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.got = &got
	}()
	synctest.Wait()
	return a
}

func (a *asked) is(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	got := "waiting"
	if a.got != nil {
		got = map[bool]string{true: "got", false: "refused"}[*a.got]
	}
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestRoomServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{size: 10}
		if !r.try(8) || r.try(3) {
			t.Fatal("8 of 10 are there, and then not 3")
		}
		large := ask(t.Context(), r, 5, 0)
		small := ask(t.Context(), r, 1, 0)
		if r.try(1) {
			t.Error("one that asked later went before")
		}
		small.is(t, "waiting")
		r.free(3)
		large.is(t, "got")
		small.is(t, "waiting")
		r.free(5)
		small.is(t, "got")
		ask(t.Context(), r, 3, 8).is(t, "refused") // more than there will ever be
	})
}

func TestRoomLetsGoWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{size: 10}
		r.try(8)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		large := ask(ctx, r, 5, 0)
		small := ask(t.Context(), r, 2, 0)
		small.is(t, "waiting")
		time.Sleep(time.Second)
		large.is(t, "refused")
		small.is(t, "got")
		ask(ctx, r, 0, 0).is(t, "refused")
		if r.taken != 10 {
			t.Errorf("%d are taken", r.taken)
		}
	})
}

func TestRoomChangesItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &room{size: 10}
		r.try(8)
		one, two := ask(t.Context(), r, 6, 0), ask(t.Context(), r, 6, 0)
		r.resize(14)
		one.is(t, "got")
		two.is(t, "waiting")

		r.resize(7) // 14 are taken: they stay so
		two.is(t, "waiting")
		never := ask(t.Context(), r, 6, 1)
		never.is(t, "waiting")
		r.free(8)
		if two.is(t, "waiting"); r.try(1) {
			t.Error("more is given than the room has now")
		}
		r.free(6)
		two.is(t, "got")
		never.is(t, "waiting")
		r.resize(5)
		never.is(t, "refused") // as it will never fit
		r.free(6)
		if r.taken != 0 || !r.try(5) || r.try(1) {
			t.Error("the room is not what it was made")
		}
	})
}
