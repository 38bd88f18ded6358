package page

import (
	"fmt"
	"slices"
	"testing"
)

// refused is what Chromium's console has of an answer that is an error.
const refused = `network: Failed to load resource: the server responded with a status of 401 \(Unauthorized\)`

// busy sends requests of every outcome, and leaves keys in flight and unknown.
func busy(t *testing.T, p *proxy, u *upstream) {
	t.Helper()
	more(t, p, "a")
	p.sends(t, 400, "/api/payments", "", "{}")         // rejected: no key
	p.sends(t, 422, "/api/payments", "pay-a-0", "[1]") // rejected: another request
	p.sends(t, 429, "/api/payments", "busy-1", "{}")   // released
	p.sends(t, 502, "/api/payments", "drop-1", "{}")   // failed, unknown
	p.sends(t, 409, "/api/payments", "drop-1", "{}")
	p.sends(t, 502, "/api/orders/7", "drop-2", "{}")
	p.sends(t, 201, "/api/%3Cb%3E/x", "seen-1", "{}")
	p.hangs(t, u, "/api/payments", "hang-1")
}

// more sends some that are executed, replayed and passed through.
func more(t *testing.T, p *proxy, name string) {
	t.Helper()
	for i := range 20 {
		p.sends(t, 201, "/api/payments", fmt.Sprintf("pay-%s-%d", name, i), "{}")
		if i%3 == 0 {
			p.sends(t, 201, "/api/payments", fmt.Sprintf("pay-%s-%d", name, i), "{}")
			p.sends(t, 201, "/api/orders/1", "", "{}")
		}
	}
}

// payments is the card of the first route.
const payments = "document.querySelector('#routes article')"

// number is what a row of its legend says: 0 the rate, 1 the sum.
func number(row, column int) string {
	return fmt.Sprintf("%s.querySelectorAll('.legend tbody tr')[%d].querySelectorAll('td')[%d].innerText", payments, row, column)
}

func TestWhatGoesOn(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	p := start(t, setup{upstream: u.URL, routes: routes})
	b := open(t, p.control, "/", refused)
	b.signIn()
	b.says("#keys-note", "No request is in flight")
	b.shot("empty")
	busy(t, p, u)

	// Rates of every outcome are plotted, and move.
	for row, outcome := range []string{"executed", "replayed", "passed_through", "rejected", "released", "failed"} {
		if outcome == "passed_through" {
			continue // that is of orders
		}
		b.until(number(row, 1) + " !== '0'")
		b.until(fmt.Sprintf("%s.querySelector('polygon.%s') !== null", payments, outcome))
	}
	b.until("document.querySelectorAll('#routes article')[1].querySelector('polygon.passed_through') !== null")
	before := js[string](b, payments+".querySelector('polygon.executed').getAttribute('points')")
	total := js[string](b, number(0, 1))
	more(t, p, "b")
	b.until(number(0, 1) + " !== " + quote(total))
	b.until(payments + ".querySelector('polygon.executed').getAttribute('points') !== " + quote(before))

	// Keys in flight and unknown are listed, with times in words.
	b.until("document.querySelectorAll('#keys li').length === 3")
	b.says("#keys-note", "2 unknown, 1 in flight.")
	b.says("#keys li:last-child", "Being executed")
	b.says("#keys", "ago")
	b.says("#glance-unknown", "2")

	// What moves, moves within its place: nothing jumps.
	if shift := js[float64](b, `new Promise((done) => {
		let sum = 0;
		new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) sum += e.value; }).observe({type: "layout-shift", buffered: true});
		setTimeout(() => done(sum), 200);
	})`); shift > 0.02 {
		t.Errorf("the layout shifted by %v", shift)
	}

	// The effective rules are shown, those that were set first.
	js[bool](b, "document.querySelectorAll('#routes details').forEach((d) => { d.open = true; }) || true")
	b.says("#routes .settings", "identity_header")
	b.says("#routes .settings", "X-Account")
	b.says("#routes details", "outcome")

	// What a name of a route holds is text.
	if names := js[[]string](b, "[...document.querySelectorAll('#routes h3')].map((e) => e.textContent)"); !slices.Equal(names, []string{"payments", "orders", hostile}) {
		t.Errorf("routes: %q", names)
	}
	if n := js[int](b, "document.querySelectorAll('main img, main b, main script').length"); n != 0 {
		t.Errorf("%d elements came out of names", n)
	}
	for _, width := range []int64{768, 1280, 375} {
		b.sized(width, 900)
	}
	b.shot("rules-375")
	js[bool](b, "document.querySelectorAll('#routes details').forEach((d) => { d.open = false; }) || true")
	for _, dark := range []bool{false, true} {
		b.dark(dark)
		for _, width := range []int64{375, 1280} {
			b.sized(width, 900)
			b.shot(fmt.Sprintf("traffic-%d-dark-%v", width, dark))
		}
	}
	for _, a := range b.changing() {
		t.Errorf("looking did %s", a)
	}
}
