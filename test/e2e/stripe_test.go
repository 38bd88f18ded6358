package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"
	"github.com/stripe/stripe-go/v82/paymentintent"
)

// These tests drive the official Go client of a payments API, with its own retries and
// idempotency keys, through the proxy. What counts is the ledger of the service behind
// it: money moves once, and the client gets the answer.

// A ledger is a payments API. What it did can be counted.
type ledger struct {
	mu       sync.Mutex
	payments []string // what each was for
}

// pay executes a payment and answers as the API does.
func (l *ledger) pay(w http.ResponseWriter, r *received) {
	form, err := url.ParseQuery(string(r.body))
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	l.payments = append(l.payments, form.Get("description"))
	n := len(l.payments)
	l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", fmt.Sprintf("req_%d", n))
	fmt.Fprintf(w, `{"id":"pi_%d","object":"payment_intent","amount":%s,"currency":"eur","description":%q,"status":"succeeded"}`,
		n, form.Get("amount"), form.Get("description"))
}

// envelope answers with an error as the API writes them.
func envelope(status int, kind, code string) handler {
	return func(w http.ResponseWriter, r *received) {
		w.Header().Set("Content-Type", "application/json")
		text(status, fmt.Sprintf(`{"error":{"type":%q,"code":%q,"message":"not now"}}`, kind, code))(w, r)
	}
}

// paid checks how often a payment was executed.
func (l *ledger) paid(t *testing.T, what string, want int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := len(slices.DeleteFunc(slices.Clone(l.payments), func(p string) bool { return p != what })); got != want {
		t.Errorf("%s: paid %d times, want %d", what, got, want)
	}
}

// A shopper is a stripe-go client.
type shopper struct {
	client paymentintent.Client

	mu       sync.Mutex
	statuses []int // of the answers that came, retries included; 0 for none
	each     func(status int)
}

// RoundTrip notes what comes back.
func (s *shopper) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	status := 0
	if err == nil {
		status = res.StatusCode
	}
	s.mu.Lock()
	s.statuses = append(s.statuses, status)
	s.mu.Unlock()
	if s.each != nil {
		s.each(status)
	}
	return res, err
}

func (s *shopper) got() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.statuses)
}

// newShopper is a client that talks to addr and retries by itself. each sees the status
// of every answer before the client does.
func newShopper(addr string, timeout time.Duration, each func(status int)) *shopper {
	s := &shopper{each: each}
	s.client = paymentintent.Client{Key: stripeKey, B: stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL:               stripe.String("http://" + addr),
		HTTPClient:        &http.Client{Transport: s, Timeout: timeout},
		MaxNetworkRetries: stripe.Int64(8),
		EnableTelemetry:   stripe.Bool(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
	})}
	return s
}

// buy pays 4200 for something. Without a key the client makes one.
func (s *shopper) buy(what, key string) (*stripe.PaymentIntent, error) {
	params := &stripe.PaymentIntentParams{Amount: stripe.Int64(4200), Currency: stripe.String("eur"), Description: stripe.String(what)}
	if key != "" {
		params.SetIdempotencyKey(key)
	}
	return s.client.New(params)
}

// bought checks that a purchase succeeded, and was answered with this ID.
func bought(t *testing.T, p *stripe.PaymentIntent, err error, id string) {
	t.Helper()
	switch {
	case err != nil:
		t.Errorf("the client got the error %v, want %s", err, id)
	case p.ID != id || p.Amount != 4200 || p.Status != stripe.PaymentIntentStatusSucceeded:
		t.Errorf("the client got %s of %d, %s; want %s", p.ID, p.Amount, p.Status, id)
	}
}

const stripeKey = "sk_test_0123456789abcdef"

const stripeRoutes = `
  - {name: payments, path: "/v1/payment_intents"}
  - {name: others, path: "/v1/{rest...}", missing_header: pass-through}`

func TestStripeAnOrdinaryPayment(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l := &ledger{}
		up := newUpstream(t, l.pay)
		p := start(t, setup{store: s, upstream: up.url, routes: stripeRoutes})
		c := newShopper(p.addr, patience, nil)
		payment, err := c.buy("a book", "")
		bought(t, payment, err, "pi_1")
		payment, err = c.buy("a book", "") // another key of its own: another book
		bought(t, payment, err, "pi_2")
		k := newKey()
		payment, err = c.buy("a pen", k)
		bought(t, payment, err, "pi_3")
		payment, err = c.buy("a pen", k)
		bought(t, payment, err, "pi_3")
		if err == nil && payment.LastResponse.Header.Get(replayHeader) != "true" {
			t.Error("the client can't see that it got a replay")
		}
		up.saw(t, 3)
	})
}

// A second client meets a key in flight. It retries by itself and ends with the replay.
func TestStripeMeetsAKeyInFlight(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l, g := &ledger{}, newGate(t)
		up := newUpstream(t, held(g, l.pay))
		p := start(t, setup{store: s, upstream: up.url, routes: stripeRoutes})
		k := newKey()
		first := make(chan error, 1)
		go func() {
			payment, err := newShopper(p.addr, patience, nil).buy("a book", k)
			if err == nil && payment.ID != "pi_1" {
				err = errors.New(payment.ID)
			}
			first <- err
		}()
		g.arrived(t)
		second := newShopper(p.addr, patience, func(status int) {
			if status == 409 {
				g.open()
			}
		})
		payment, err := second.buy("a book", k)
		bought(t, payment, err, "pi_1")
		if err == nil && payment.LastResponse.Header.Get(replayHeader) != "true" {
			t.Error("it ended without the replay")
		}
		if got := second.got(); got[0] != 409 || got[len(got)-1] != 200 {
			t.Errorf("the second client got %v, want 409s and 200", got)
		}
		if err := receive(t, "end of the first client", first); err != nil {
			t.Error(err)
		}
		l.paid(t, "a book", 1)
		up.saw(t, 1)
	})
}

// The service is slower than the client's patience. The client hangs up and retries.
func TestStripeIsImpatient(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l, g := &ledger{}, newGate(t)
		up := newUpstream(t, held(g, l.pay))
		p := start(t, setup{store: s, upstream: up.url, routes: stripeRoutes})
		c := newShopper(p.addr, time.Second, func(status int) {
			if status == 409 {
				g.open()
			}
		})
		payment, err := c.buy("a book", "")
		bought(t, payment, err, "pi_1")
		if got := c.got(); got[0] != 0 || !slices.Contains(got, 409) {
			t.Errorf("the client got %v, want nothing, then 409", got)
		}
		l.paid(t, "a book", 1)
		up.saw(t, 1)
	})
}

// The network between client and proxy loses the answer of a payment that was made.
func TestStripeLosesTheAnswer(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l := &ledger{}
		var k *link
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			k.hold()
			l.pay(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: stripeRoutes})
		k = newLink(t, p.addr)
		c := newShopper(k.addr, patience, nil)
		done := make(chan result2, 1)
		go func() {
			payment, err := c.buy("a book", "")
			done <- result2{payment, err}
		}()
		eventually(t, "executed", func() bool {
			return p.metric(t, `idemproxy_requests_total{outcome="executed",route="payments"}`) == 1
		})
		k.cut()
		k.resume()
		got := receive(t, "end of the client", done)
		bought(t, got.payment, got.err, "pi_1")
		if statuses := c.got(); statuses[0] != 0 || len(statuses) < 2 {
			t.Errorf("the client got %v, want nothing, then the answer", statuses)
		}
		l.paid(t, "a book", 1)
		up.saw(t, 1)
	})
}

type result2 struct {
	payment *stripe.PaymentIntent
	err     error
}

// What the service answers itself, the client gets, once and again.
func TestStripeAndAServiceThatRefuses(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l := &ledger{}
		up := newUpstream(t, nil)
		p := start(t, setup{store: s, upstream: up.url, routes: stripeRoutes})
		for i, answer := range []handler{
			envelope(500, "api_error", "internal"),
			envelope(402, "card_error", "card_declined"),
			envelope(503, "api_error", "unavailable"),
		} {
			up.answers(answer)
			k := newKey()
			c := newShopper(p.addr, patience, nil)
			_, err := c.buy("a book", k)
			first, ok := errors.AsType[*stripe.Error](err)
			if !ok {
				t.Fatalf("the client got %v", err)
			}
			up.answers(l.pay)
			_, err = c.buy("a book", k)
			again, ok := errors.AsType[*stripe.Error](err)
			if !ok || again.HTTPStatusCode != first.HTTPStatusCode || again.Code != first.Code {
				t.Errorf("the client got %v, first %v", err, first)
			}
			up.saw(t, i+1)
		}
		l.paid(t, "a book", 0)
	})
}

// The service fails before it acts, in ways that leave no doubt, or in ways that do and
// the rule says to go on. The client retries until it is served.
func TestStripeAndAServiceThatFailsFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		for name, tc := range map[string]struct {
			answer handler
			rule   string
		}{
			"429, to be retried":     {envelope(429, "invalid_request_error", "lock_timeout"), ""},
			"503 that means not now": {text(503, "maintenance"), `release_statuses: [401, 429, 503]`},
			"dropped":                {dropped(), "on_unknown_outcome: release"},
			"cut":                    {hijacked("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), "on_unknown_outcome: release"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				l := &ledger{}
				up := newUpstream(t, tc.answer)
				p := start(t, setup{store: s, upstream: up.url, defaults: tc.rule, routes: stripeRoutes})
				c := newShopper(p.addr, patience, func(int) { up.answers(l.pay) })
				payment, err := c.buy("a book", "")
				bought(t, payment, err, "pi_1")
				l.paid(t, "a book", 1)
				up.saw(t, 2)
			})
		}
	})
}

// The service is not there at first: the key stays free, and the client's retry is served.
func TestStripeAndAServiceThatIsAway(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l := &ledger{}
		port := freePort()
		p := start(t, setup{store: s, upstream: "http://" + local(port), routes: stripeRoutes})
		var up *upstream
		c := newShopper(p.addr, patience, func(status int) {
			if up == nil {
				up = upstreamOn(t, port, l.pay)
			}
		})
		payment, err := c.buy("a book", "")
		bought(t, payment, err, "pi_1")
		if got := c.got(); !slices.Equal(got, []int{502, 200}) {
			t.Errorf("the client got %v", got)
		}
		l.paid(t, "a book", 1)
		up.saw(t, 1)
	})
}

// The service drops the connection after it acted, and nobody knows that it did. By
// default the client gets an error, and money moves once.
func TestStripeAndAServiceThatActsAndDrops(t *testing.T) {
	eachStore(t, func(t *testing.T, s storage) {
		l := &ledger{}
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			l.pay(discard{http.Header{}}, r)
			dropped()(w, r)
		})
		p := start(t, setup{store: s, upstream: up.url, routes: stripeRoutes})
		c := newShopper(p.addr, patience, nil)
		c.client.B.SetMaxNetworkRetries(2)
		_, err := c.buy("a book", "")
		if err == nil || !strings.Contains(fmt.Sprint(err), "outcome_unknown") && !strings.Contains(fmt.Sprint(err), "cannot unmarshal") {
			t.Errorf("the client got %v", err)
		}
		if got := c.got(); !slices.Equal(got, []int{502, 409, 409}) {
			t.Errorf("the client got %v", got)
		}
		l.paid(t, "a book", 1)
		up.saw(t, 1)
	})
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// Many clients at two replicas, with every trouble that leaves the outcome known: each
// payment is made once, and each client gets its answer.
func TestStripeManyClientsManyTroubles(t *testing.T) {
	eachShared(t, func(t *testing.T, shared storage) {
		l := &ledger{}
		var mu sync.Mutex
		tries := map[string]int{}
		up := newUpstream(t, func(w http.ResponseWriter, r *received) {
			form, _ := url.ParseQuery(string(r.body))
			what := form.Get("description")
			mu.Lock()
			tries[what]++
			try := tries[what]
			mu.Unlock()
			switch trouble, _, _ := strings.Cut(what, " "); {
			case trouble == "locked" && try == 1:
				envelope(429, "invalid_request_error", "lock_timeout")(w, r)
			case trouble == "unavailable" && try < 3:
				text(503, "restarting")(w, r)
			case trouble == "slow":
				<-time.After(1500 * time.Millisecond)
				l.pay(w, r)
			default:
				l.pay(w, r)
			}
		})
		s := setup{store: shared, upstream: up.url, defaults: "release_statuses: [401, 429, 503]", routes: stripeRoutes}
		replicas := []*proxy{start(t, s), start(t, s)}
		var all sync.WaitGroup
		for i := range 24 {
			trouble := []string{"ordinary", "locked", "unavailable", "slow"}[i%4]
			what, key := fmt.Sprintf("%s %d", trouble, i), newKey()
			for _, p := range replicas { // both of a client's processes send it
				all.Go(func() {
					timeout := patience
					if trouble == "slow" {
						timeout = time.Second
					}
					payment, err := newShopper(p.addr, timeout, nil).buy(what, key)
					if err != nil || payment.Description != what {
						t.Errorf("%s: the client got %v, %v", what, payment, err)
					}
				})
			}
		}
		all.Wait()
		for i := range 24 {
			l.paid(t, fmt.Sprintf("%s %d", []string{"ordinary", "locked", "unavailable", "slow"}[i%4], i), 1)
		}
	})
}
