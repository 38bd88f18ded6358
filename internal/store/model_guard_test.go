package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"idemproxy/internal/dedup"
	"idemproxy/internal/store"
	"idemproxy/internal/store/storetest"
)

// What may become of an operation on its way to the store and back.
type link string

const (
	linkFine    link = "fine"
	linkTwice   link = "twice"   // the first reply is lost, and the operation repeated
	linkRefused link = "refused" // not applied, and the error says so
	linkDown    link = "down"    // not applied, the caller hears nothing
	linkDeaf    link = "deaf"    // applied, the caller hears nothing
	linkSlow    link = "slow"    // the caller hears nothing, and it is applied later
)

var (
	links   = []link{linkFine, linkFine, linkTwice, linkTwice, linkRefused, linkDown, linkDeaf, linkSlow}
	errLost = errors.New("connection lost")
)

// A watched store is a real store behind bad links. Each owner, known by its token, has a
// link of its own. Every operation that reaches the store is compared with the model.
type watched struct {
	dedup.Store
	start time.Time
	slack time.Duration // between the store's clock and ours

	mu      sync.Mutex
	models  []model // what the store may hold; one, unless the time of something is not exact
	links   map[dedup.Token]link
	birth   link // of tokens that are new
	newest  dedup.Token
	answers map[dedup.Token]string // to each owner's last operation, renewals left out
	slow    []func()
	late    bool                 // a claim was applied later
	ended   map[dedup.Token]bool // whose renewals must have stopped
	steps   []string
	wrong   string
}

func watch(s dedup.Store, slack time.Duration) *watched {
	return &watched{
		Store: s, start: time.Now(), slack: slack, models: []model{{kind: modelFree}},
		links: map[dedup.Token]link{}, ended: map[dedup.Token]bool{}, answers: map[dedup.Token]string{},
	}
}

func (w *watched) now() time.Duration { return time.Since(w.start) }

// apply runs an operation on the store and compares its answer with the model's.
func apply[T any](w *watched, token dedup.Token, what string, op func() (T, error), said func(T) answer, worlds func(model, span) []world) (T, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	renewal := what == "renew"
	what += " " + short(token)
	at := span{lo: w.now() - w.slack}
	result, err := op()
	at.hi = w.now() + w.slack
	if err != nil {
		w.note(what, err.Error())
		switch {
		case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
			w.wrong = what + ": " + err.Error()
		case !errors.Is(err, dedup.ErrNotApplied): // it may have been
			w.models = append(w.models, maybe(w.models, func(m model) []world { return worlds(m, at) })...)
		}
		return result, err
	}
	heard := said(result)
	if !renewal {
		w.answers[token] = heard.text
	}
	w.note(what, heard.text)
	then := after(w.models, func(m model) []world { return worlds(m, at) }, heard)
	if len(then) == 0 && w.wrong == "" {
		w.wrong = fmt.Sprintf("%s: the store answers %+v at %v; it should hold one of %+v", what, heard, at, w.models)
	}
	w.models = then
	return result, err
}

// send sends an operation over its owner's link.
func send[T any](ctx context.Context, w *watched, token dedup.Token, what string, op func(context.Context) (T, error)) (T, error) {
	w.mu.Lock()
	l, known := w.links[token]
	if !known {
		l = w.birth
		w.links[token], w.newest = l, token
	}
	if what != "renew" { // those come in between
		delete(w.answers, token)
	}
	if what == "renew" && w.ended[token] && w.slack == 0 {
		w.wrong = "a renewal after the end of the claim of " + short(token)
	}
	w.mu.Unlock()
	var none T
	switch l {
	case linkRefused:
		return none, fmt.Errorf("%w: %w", dedup.ErrNotApplied, errLost)
	case linkDown:
		return none, errLost
	case linkDeaf:
		_, _ = op(ctx)
		return none, errLost
	case linkTwice:
		_, _ = op(ctx)
	case linkFine:
	case linkSlow:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.slow = append(w.slow, func() {
			_, _ = op(context.WithoutCancel(ctx))
			w.late = w.late || what == "claim"
		})
		return none, errLost
	}
	return op(ctx)
}

func (w *watched) note(what, result string) {
	w.steps = append(w.steps, fmt.Sprintf("%v %s: %.80q", w.now(), what, result))
}

func (w *watched) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps = append(w.steps, fmt.Sprintf("%v ", w.now())+fmt.Sprintf(format, args...))
}

// heard is the store's answer to an owner's last operation, if it came to the store.
func (w *watched) heard(token dedup.Token) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers[token]
}

// hears reports whether answers come through.
func (l link) hears() bool { return l == linkFine || l == linkTwice }

func short(t dedup.Token) string { return string(t[:4]) }

func (w *watched) Claim(ctx context.Context, req dedup.ClaimRequest) (dedup.Found, error) {
	req.Wait = req.Token[0]%2 == 0 // which makes no difference to anybody
	return send(ctx, w, req.Token, "claim", func(ctx context.Context) (dedup.Found, error) {
		return apply(w, req.Token, "claim", func() (dedup.Found, error) { return w.Store.Claim(ctx, req) },
			claimAnswer, func(m model, at span) []world { return m.claim(req, at) })
	})
}

func (w *watched) Renew(ctx context.Context, id dedup.ID, token dedup.Token, lease time.Duration) (dedup.Verdict, error) {
	return send(ctx, w, token, "renew", func(ctx context.Context) (dedup.Verdict, error) {
		return apply(w, token, "renew", func() (dedup.Verdict, error) { return w.Store.Renew(ctx, id, token, lease) },
			ownerAnswer, func(m model, at span) []world { return m.renew(token, lease, at) })
	})
}

func (w *watched) Complete(ctx context.Context, id dedup.ID, token dedup.Token, c dedup.Completion) (dedup.Verdict, error) {
	return send(ctx, w, token, "complete", func(ctx context.Context) (dedup.Verdict, error) {
		return apply(w, token, "complete", func() (dedup.Verdict, error) { return w.Store.Complete(ctx, id, token, c) },
			ownerAnswer, func(m model, at span) []world { return m.complete(token, c, at) })
	})
}

func (w *watched) Release(ctx context.Context, id dedup.ID, token dedup.Token) (dedup.Verdict, error) {
	return send(ctx, w, token, "release", func(ctx context.Context) (dedup.Verdict, error) {
		return apply(w, token, "release", func() (dedup.Verdict, error) { return w.Store.Release(ctx, id, token) },
			ownerAnswer, func(m model, at span) []world { return m.release(token, at) })
	})
}

// An owner was told to execute the operation.
type owner struct {
	claim       *dedup.Claim
	token       dedup.Token
	fingerprint dedup.Fingerprint
	body        string
	since       time.Duration
	reliable    bool                        // its link was always fine
	how         string                      // the one way in which it ends, once it has begun to
	end         func(context.Context) error // the same
}

// pace is how long things take in a game.
type pace struct {
	lease, ttl time.Duration
	sleeps     []time.Duration
	steps      [2]int
}

// A game is a random run: callers that ask, owners that end or vanish, and time.
type game struct {
	*rapid.T
	pace
	store  *watched
	guard  *dedup.Guard
	rule   *dedup.Rule
	op     dedup.Operation
	owners []*owner

	withdrawing sync.WaitGroup
	withdrawals context.Context
	giveUp      func() // ends the withdrawals
	doubts      int
}

func newGame(t *rapid.T, s dedup.Store, p pace, slack time.Duration) *game {
	rule := dedup.DefaultRule()
	rule.Name, rule.Path, rule.Lease, rule.TTL = "payments", "/pay", p.lease, p.ttl
	rule.OnUnknownOutcome = rapid.SampledFrom([]dedup.UnknownOutcome{dedup.UnknownHold, dedup.UnknownRelease}).Draw(t, "policy")
	g := &game{T: t, pace: p, store: watch(s, slack), rule: &rule, op: dedup.Operation{ID: request(time.Hour).ID}}
	g.guard = dedup.NewGuard(g.store)
	ctx, cancel := context.WithCancel(context.Background())
	g.withdrawals, g.giveUp = ctx, cancel
	t.Cleanup(func() {
		for _, o := range g.owners { // stops their renewals
			_ = o.claim.Release(ctx)
		}
		cancel()
		g.withdrawing.Wait()
	})
	return g
}

func (g *game) play() {
	actions := []func(){g.ask, g.ask, g.ask, g.end, g.end, g.relink, g.arrive, g.sleep, g.sleep}
	for range rapid.IntRange(g.steps[0], g.steps[1]).Draw(g.T, "steps") {
		rapid.SampledFrom(actions).Draw(g.T, "action")()
		g.check()
	}
	g.finish()
	g.check()
}

// lost fails the test with what happened.
func (g *game) lost(format string, args ...any) {
	g.Helper()
	g.store.mu.Lock()
	steps := strings.Join(g.store.steps, "\n")
	g.store.mu.Unlock()
	g.Fatalf("%s\n%s", fmt.Sprintf(format, args...), steps)
}

func (g *game) check() {
	g.Helper()
	if g.store.slack == 0 {
		synctest.Wait() // for what goes on in the background
	}
	g.store.mu.Lock()
	wrong := g.store.wrong
	g.store.mu.Unlock()
	if wrong != "" {
		g.lost("%s", wrong)
	}
}

// ask is a caller with one of two requests.
func (g *game) ask() {
	fingerprint := dedup.Fingerprint{rapid.SampledFrom([]byte{1, 1, 1, 2}).Draw(g.T, "fingerprint")}
	g.store.birth = rapid.SampledFrom(links).Draw(g.T, "link")
	g.begin(fingerprint)
}

func (g *game) begin(fingerprint dedup.Fingerprint) dedup.Decision {
	g.store.say("a caller asks, its link is %s", g.store.birth)
	op := g.op
	op.Fingerprint = fingerprint
	asked := g.store.now() - g.store.slack
	d := g.guard.Begin(context.Background(), g.rule, op)
	if n := count(d.Claim != nil, d.Replay != nil, d.Rejection != nil); n != 1 {
		g.lost("the decision is %d things: %+v", n, d)
	}
	answer := g.store.heard(g.store.newest)
	if !g.store.birth.hears() {
		g.unheard(d)
		return d
	}
	for _, o := range g.owners {
		if o.reliable && o.end == nil && g.store.slack == 0 && answer != "in progress" {
			g.lost("%s runs and renews its lease, and a caller finds %q", short(o.token), answer)
		}
	}
	switch answer {
	case "acquired", "taken over":
		if d.Claim == nil && g.store.slack > 0 && g.store.now()-asked >= g.lease {
			g.doubtful(d) // the answer came after the lease: a busy machine
			return d
		}
		g.execute(d, fingerprint, asked)
	case "in progress":
		g.rejected(d, dedup.ReasonInProgress)
		if r := d.Rejection.RetryAfter; r <= 0 || r > time.Second {
			g.lost("retry after %v", r)
		}
	case "unknown":
		g.rejected(d, dedup.ReasonOutcomeUnknown)
	default:
		g.recorded(d, fingerprint)
	}
	return d
}

func count(bools ...bool) (n int) {
	for _, b := range bools {
		if b {
			n++
		}
	}
	return n
}

func (g *game) rejected(d dedup.Decision, reason dedup.Reason) {
	g.Helper()
	if d.Rejection == nil || d.Rejection.Reason != reason || d.InDoubt != nil {
		g.lost("the decision is %+v (%v), want %s", d, d.Rejection, reason)
	}
}

// unheard checks a decision without an answer of the store.
func (g *game) unheard(d dedup.Decision) {
	g.Helper()
	if d.Rejection == nil || d.Rejection.Reason != dedup.ReasonStoreUnavailable || (d.InDoubt != nil) == (g.store.birth == linkRefused) {
		g.lost("the decision is %+v (%v), while the link is %s", d, d.Rejection, g.store.birth)
	}
	if d.InDoubt != nil {
		g.doubtful(d)
	}
}

// doubtful withdraws a claim of which nobody knows whether the store took it.
func (g *game) doubtful(d dedup.Decision) {
	g.doubts++
	g.withdrawing.Go(func() { _ = d.InDoubt.Withdraw(g.withdrawals) })
}

// execute checks that whoever is to execute now may: nobody else has, or may have, since
// the key was free.
func (g *game) execute(d dedup.Decision, fingerprint dedup.Fingerprint, asked time.Duration) {
	g.Helper()
	now := g.store.now() + g.store.slack
	for _, o := range g.owners {
		held := g.rule.OnUnknownOutcome == dedup.UnknownHold && now < o.since+g.ttl
		running := o.end == nil && now < o.since+g.lease
		if o.how != "release" && (held || running) {
			g.lost("executed by %s, and again by %s", short(o.token), short(g.store.newest))
		}
	}
	if d.Claim == nil || d.TakenOver != (g.store.heard(g.store.newest) == "taken over") {
		g.lost("the claim is ours, %s, and the decision is %+v", g.store.heard(g.store.newest), d)
	}
	g.owners = append(g.owners, &owner{
		claim: d.Claim, token: g.store.newest, fingerprint: fingerprint, body: fmt.Sprint("answer ", len(g.owners)),
		since: asked, reliable: true,
	})
}

// isRecorded reports whether the record of an owner was certainly stored at last.
func (g *game) isRecorded(o *owner) bool {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	return !slices.ContainsFunc(g.store.models, func(m model) bool { return m.kind != modelCompleted || m.token != o.token })
}

// recorded checks what a caller gets who finds a record.
func (g *game) recorded(d dedup.Decision, fingerprint dedup.Fingerprint) {
	g.Helper()
	i := slices.IndexFunc(g.owners, func(o *owner) bool { return g.isRecorded(o) })
	if i < 0 {
		g.lost("there is a record that nobody made")
	}
	o := g.owners[i]
	if o.fingerprint != fingerprint {
		g.rejected(d, dedup.ReasonKeyReuse)
		return
	}
	if d.Replay == nil || string(d.Replay.Body) != o.body || o.how != "complete" {
		g.lost("the decision is %+v, want the answer of %s", d, short(o.token))
	}
}

// end is an owner that ends, or tries so once more.
func (g *game) end() {
	if len(g.owners) == 0 {
		return
	}
	o := rapid.SampledFrom(g.owners).Draw(g.T, "owner")
	if o.end == nil {
		g.choose(o, rapid.SampledFrom([]string{"complete", "complete", "unknown", "release"}).Draw(g.T, "how"))
	}
	g.try(o)
}

func (g *game) choose(o *owner, how string) {
	o.how = how
	switch how {
	case "complete":
		record := &dedup.Record{Completed: time.Now(), Status: 201, Body: []byte(o.body)}
		o.end = func(ctx context.Context) error { return o.claim.Complete(ctx, record) }
	case "unknown":
		o.end = o.claim.Unknown
	case "release":
		o.end = o.claim.Release
	}
}

func (g *game) try(o *owner) {
	g.Helper()
	g.store.mu.Lock()
	l := g.store.links[o.token]
	g.store.mu.Unlock()
	g.store.say("%s ends by %s, its link is %s", short(o.token), o.how, l)
	err := o.end(context.Background())
	g.store.mu.Lock()
	g.store.ended[o.token] = true
	g.store.mu.Unlock()
	answer := g.store.heard(o.token)
	switch {
	case !l.hears() && (err == nil || errors.Is(err, dedup.ErrFenced)):
		g.lost("the end of %s: %v, although it heard nothing", short(o.token), err)
	case l.hears() && answer == "fenced" && (!errors.Is(err, dedup.ErrFenced) || !o.claim.LeaseLost()):
		g.lost("the end of %s: %v, lease lost: %v; it is fenced", short(o.token), err, o.claim.LeaseLost())
	case l.hears() && answer != "fenced" && err != nil:
		g.lost("the end of %s: %v", short(o.token), err)
	}
}

// relink changes the link of an owner, or of a caller that was told nothing.
func (g *game) relink() {
	var tokens []dedup.Token
	for _, o := range g.owners {
		tokens = append(tokens, o.token)
	}
	if len(tokens) == 0 {
		return
	}
	token := rapid.SampledFrom(tokens).Draw(g.T, "whose")
	l := rapid.SampledFrom(links).Draw(g.T, "link")
	g.store.mu.Lock()
	g.store.links[token] = l
	g.store.mu.Unlock()
	g.store.say("the link of %s is %s now", short(token), l)
	for _, o := range g.owners {
		o.reliable = o.reliable && (o.token != token || l.hears())
	}
}

// arrive lets an operation come to the store that was long on its way.
func (g *game) arrive() {
	g.store.mu.Lock()
	waiting := g.store.slow
	g.store.mu.Unlock()
	if len(waiting) == 0 {
		return
	}
	i := rapid.IntRange(0, len(waiting)-1).Draw(g.T, "which")
	g.store.say("something arrives late")
	waiting[i]()
	g.store.mu.Lock()
	g.store.slow = slices.Delete(g.store.slow, i, i+1)
	g.store.mu.Unlock()
}

func (g *game) sleep() {
	time.Sleep(rapid.SampledFrom(g.sleeps).Draw(g.T, "sleep"))
}

// finish makes everything work again, lets every owner end, and asks what became of the
// key.
func (g *game) finish() {
	g.store.say("from now on all is fine")
	g.store.mu.Lock()
	for token := range g.store.links {
		g.store.links[token] = linkFine
	}
	slow := g.store.slow
	g.store.slow = nil
	g.store.mu.Unlock()
	for _, arrive := range slow {
		arrive()
	}
	for _, o := range g.owners {
		if o.end == nil {
			g.choose(o, "unknown")
		}
		g.try(o)
	}
	if g.store.slack > 0 {
		g.giveUp() // they take a second each
	}
	g.withdrawing.Wait()
	if g.store.late || g.store.slack > 0 && g.doubts > 0 {
		return // a claim that comes after its withdrawal is held: wrong on the safe side
	}
	g.store.birth = linkFine
	d := g.begin(dedup.Fingerprint{1})
	if d.Claim == nil && !slices.ContainsFunc(g.owners, func(o *owner) bool { return o.how != "release" }) {
		g.lost("nobody has executed, and the decision is %+v (%v)", d, d.Rejection)
	}
}

// checks limits how many runs rapid makes, unless the command line does.
func checks(t *testing.T, n string) {
	f := flag.Lookup("rapid.checks")
	if f.Value.String() != f.DefValue {
		return
	}
	_ = f.Value.Set(n)
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
}

// TestModelOfTheGuardOnMemory: random interleavings of callers and owners, lost and late
// commands, expiries and takeovers never surprise the model.
func TestModelOfTheGuardOnMemory(t *testing.T) {
	checks(t, "1500")
	p := pace{
		lease: 30 * time.Second, ttl: 10 * time.Minute, steps: [2]int{5, 40},
		sleeps: []time.Duration{time.Second, 10 * time.Second, 29 * time.Second, 30 * time.Second, 31 * time.Second, time.Minute, 10 * time.Minute},
	}
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			m := store.NewMemory(store.DefaultConfig().Memory)
			t.Cleanup(func() { _ = m.Close() })
			newGame(t, m, p, 0).play()
		})
	})
}

func TestModelOfTheGuardOnRedis(t *testing.T) {
	server := storetest.StartRedis(t)
	inRealTime(t, "60", func(t *testing.T) dedup.Store { return openRedis(t, server.Addr(), nil) })
}

func TestModelOfTheGuardOnFile(t *testing.T) {
	inRealTime(t, "30", func(t *testing.T) dedup.Store { return openFile(t, newFile(t), nil) })
}

func TestModelOfTheGuardOnPostgres(t *testing.T) {
	server := storetest.StartPostgres(t)
	inRealTime(t, "30", func(t *testing.T) dedup.Store { return openPostgres(t, server.URL(), nil) })
}

// inRealTime plays games on two stores, side by side: they wait more than they compute.
func inRealTime(t *testing.T, n string, open func(t *testing.T) dedup.Store) {
	t.Helper()
	checks(t, n)
	p := pace{
		lease: 60 * time.Millisecond, ttl: 200 * time.Millisecond, steps: [2]int{5, 30},
		sleeps: []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 70 * time.Millisecond, 90 * time.Millisecond, 210 * time.Millisecond},
	}
	t.Run("games", func(t *testing.T) {
		for range 2 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				s := open(t)
				if err := s.Ping(t.Context()); err != nil {
					t.Fatal(err)
				}
				rapid.Check(t, func(t *rapid.T) { newGame(t, s, p, 5*time.Millisecond).play() })
			})
		}
	})
}
